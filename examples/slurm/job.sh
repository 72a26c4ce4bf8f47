#!/bin/sh
#SBATCH --job-name=train
#SBATCH --ntasks=1
# A job with one task: `sbatch job.sh train.py`. Of an array (`sbatch --array=1-10 job.sh train.py`)
# each task is a run of its own.
srun fuelline run --quiet --store /shared/fleet "$@"
