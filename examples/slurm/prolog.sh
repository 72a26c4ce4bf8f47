#!/bin/sh
# `Prolog` in slurm.conf: as root on each node, before the first task of a job there.
# A cache on the node's own disk that all users may write to (docs/cache.md).
cache=/local/fuelline-cache

[ -d "$cache" ] || mkdir -p -m 1777 "$cache"
exit 0
