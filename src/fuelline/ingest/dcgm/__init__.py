"""DCGM: what dcgm-exporter shows to Prometheus."""

from fuelline.ingest.dcgm.importer import Dcgm

__all__ = ["Dcgm"]
