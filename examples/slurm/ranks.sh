#!/bin/sh
#SBATCH --job-name=ranks
#SBATCH --ntasks=2
# A job with several tasks: each writes its part of one recording, whose row goes to the store when
# all have ended. `sbatch ranks.sh train.py`
run=/shared/runs/$SLURM_JOB_ID

srun fuelline run --quiet --node-rank auto --run-dir "$run" "$@"
code=$?
line=$(fuelline fleet /shared/fleet --add "$run" --epilog)
scontrol update JobId="$SLURM_JOB_ID" Comment="$line"
exit $code
