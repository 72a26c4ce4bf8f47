"""The bottleneck zoo: real jobs, faults planted by real means, known truths."""
