"""Many runs: a small row of each in a store that all can reach, and what they come to together.

A run goes in, a `FleetRun` comes out (`summary`), which is a file of its own in a folder or an
object store (`shelf`); all of them become one `FleetLosses` (`reckoning`).
"""
