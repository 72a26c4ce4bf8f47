"""The means by which faults are planted: control groups, slow mounts, slow reads, neighbours."""
