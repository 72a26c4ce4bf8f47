"""The job of `ranks.py` under a launcher of MPI, which numbers tasks in variables of its own."""

import os
import runpy
from pathlib import Path

os.environ["RANK"] = os.environ["OMPI_COMM_WORLD_RANK"]
os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_SIZE"]
runpy.run_path(str(Path(__file__).with_name("ranks.py")), run_name="__main__")
