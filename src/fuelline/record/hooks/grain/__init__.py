"""Hooks for grain: the wait for its batches, and what its readers and workers are set to."""
