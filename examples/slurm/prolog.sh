#!/bin/sh
# `Prolog` in slurm.conf: as root on each node, before a job's first task there.
# A cache on the node's own disk that all users may write to (docs/cache.md).
folder=${FUELLINE_CACHE:-/local/fuelline-cache}
[ -d "$folder" ] || mkdir -p -m 1777 "$folder"
chmod 1777 "$folder"
exit 0
