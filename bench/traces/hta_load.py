"""HTA loads one trace, measured from inside; in a venv that has HTA and nothing of ours."""

import json
import resource
import sys

from hta.common.trace import Trace  # type: ignore[import-not-found]

if __name__ == "__main__":
    trace = Trace(trace_files={0: sys.argv[1]}, trace_dir="")
    trace.parse_traces(use_multiprocessing=False)
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime
    print(json.dumps({"cpu_s": cpu, "peak_rss_bytes": used.ru_maxrss * 1024}))
