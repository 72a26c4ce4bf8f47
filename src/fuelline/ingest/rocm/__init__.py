"""What ROCm's own profiler writes: `rocprofv3 --output-format json`, and its databases."""

from fuelline.ingest.rocm.rocpd import Rocpd
from fuelline.ingest.rocm.rocprof import Rocprof

__all__ = ["Rocpd", "Rocprof"]
