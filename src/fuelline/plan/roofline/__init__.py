"""A device measured here: rounds of probes, operators under its roof, an entry for the planner."""
