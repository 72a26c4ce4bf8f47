#!/bin/sh
#SBATCH --job-name=ranks
#SBATCH --ntasks=2
# Several tasks: each writes its part of one recording, and its row goes to the store at the end.
run=$FUELLINE_RUNS/$SLURM_JOB_ID
srun fuelline run --node-rank auto --run-dir "$run" "$@"
code=$?
fuelline fleet "$FUELLINE_STORE" --add "$run" > /dev/null
scontrol update JobId="$SLURM_JOB_ID" Comment="$(fuelline fleet "$FUELLINE_STORE" --epilog)"
exit $code
