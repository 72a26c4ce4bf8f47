#!/bin/sh
# `TaskEpilog` in slurm.conf: as the user at the end of each task, while the job can still be
# changed. What the run came to becomes the job's comment (`squeue -o %k`, `scontrol show job`).
store=/shared/fleet

[ "${SLURM_PROCID:-0}" = 0 ] || exit 0
line=$(fuelline fleet "$store" --epilog) || exit 0
scontrol update JobId="$SLURM_JOB_ID" Comment="$line"
exit 0
