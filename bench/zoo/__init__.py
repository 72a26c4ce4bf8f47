"""The bottleneck zoo: real training jobs with a fault planted by real means, and its known truth."""
