#!/bin/sh
# `Epilog` in slurm.conf: as root on each node when a job has ended. Its comment cannot be changed
# any more, so the line goes into a log.
store=/shared/fleet
log=/var/log/fuelline-jobs.log

line=$(fuelline fleet "$store" --epilog) || exit 0
echo "$(date -Is) $SLURM_JOB_ID $line" >> "$log"
exit 0
