"""A profiler's trace, replayed as our hooks would have recorded the job, and judged by the truth.

`python -m bench.replay TRACE...`: of a Kineto trace that shows a loader, the calls that our hooks
watch become the records that they would have written (`events.py`, `recording.py`), and launches
become the device times that their events would have had (`marks.py`). That recording is diagnosed;
beside the answer stands what the trace's own ledger of the device says (`truth.py`).
"""
