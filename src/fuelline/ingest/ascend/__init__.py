"""Traces of Ascend's profilers for PyTorch and MindSpore."""

from fuelline.ingest.ascend.importer import Ascend

__all__ = ["Ascend"]
