"""The names in a run's folder. Plain words, so that the launcher can use them and stay small."""

RUN_FILE = "run.json"
"""Written by the launcher before the job starts and again when it has ended."""
MANIFEST_FILE = "manifest.json"
"""Written last by compaction: where it is, the tables are whole."""
PART_PREFIX = "node-"
"""A run over several hosts has one recording a host, in folders named after their numbers."""
SPOOL_DIR = "spool"
FIX_DIR = "fix"
"""One file of JSON lines for each process whose loaders `--fix` served."""
SERVED_DIR = "served"
"""One small file for each process that got files from a pack or the cache."""
SERVED = ("packed", "hits", "copied", "passed")
"""What is counted there: files read from a pack; from a copy in the cache; from the source, which
then had a copy; from the source alone."""
PACKED, HITS, COPIED, PASSED = range(4)
FIX_VARIABLE = "FUELLINE_FIX"
"""Environment variable of a job under --fix: `safe`, and what else is allowed, with commas."""
ALLOWED = ("random", "order")
"""random: workers change in mid-epoch though the dataset draws random numbers in them. order:
iterable datasets get other numbers of workers between epochs."""
