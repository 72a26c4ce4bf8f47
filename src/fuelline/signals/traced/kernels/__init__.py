"""Kernels of imported traces: their names and classes, and the lane of a device."""
