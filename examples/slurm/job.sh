#!/bin/sh
#SBATCH --job-name=train
#SBATCH --ntasks=1
# One task; each task of an array (`sbatch --array=1-10 job.sh`) is a run of its own.
srun fuelline run --quiet --store "$FUELLINE_STORE" "$@"
