"""Hooks for JAX: calls of compiled functions, reads that wait for the device, compiling."""
