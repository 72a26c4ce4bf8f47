"""Kineto and Chrome traces: the JSON that PyTorch's profiler writes."""

from fuelline.ingest.kineto.reader import Kineto

__all__ = ["Kineto"]
