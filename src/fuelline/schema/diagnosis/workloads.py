"""How many samples a second a chip takes in a named workload, and when it counts as fed.

Published figures only: a chip that nobody measured on a workload has no row, since scaling by peak
rates would be a guess. Chips are named as the source names them.
"""

from __future__ import annotations

from msgspec import Struct


class ChipNeed(Struct, frozen=True, kw_only=True):
    """One chip's appetite in one workload."""

    chip: str
    samples_per_s: float
    basis: str = "MLPerf Storage"
    """Who says so."""


class Workload(Struct, frozen=True, kw_only=True):
    """A known training job."""

    name: str
    what: str
    pass_share: float
    """Utilisation at which MLPerf Storage calls the accelerator fed."""
    needs: tuple[ChipNeed, ...]


PASS_SHARE = 0.90
"""MLPerf Storage, for most workloads; ours where no workload is named."""


def _need(chip: str, batch: int, seconds: float) -> ChipNeed:
    return ChipNeed(chip=chip, samples_per_s=batch / seconds)


# Batch size, computation time of a step and pass mark: github.com/mlcommons/storage,
# configs/dlio/workload (storage-conf/workload before v2.0), one file per row. The B200 row of
# unet3d is MLPerf's own halving of the H100's time. CosmoFlow's mark is 0.70 by the rules of v1.0.
WORKLOADS: tuple[Workload, ...] = (
    Workload(
        name="cosmoflow",
        what="3D CNN, records of 2.8 MB",
        pass_share=0.70,
        needs=(_need("A100", 1, 0.00551), _need("H100", 1, 0.0035)),
    ),
    Workload(
        name="resnet50",
        what="image classification, JPEGs of 115 kB",
        pass_share=PASS_SHARE,
        needs=(_need("A100", 400, 0.435), _need("H100", 400, 0.224)),
    ),
    Workload(
        name="retinanet",
        what="object detection, JPEGs of 323 kB",
        pass_share=0.85,
        needs=(_need("B200", 24, 0.04755), _need("MI355", 32, 0.0634)),
    ),
    Workload(
        name="unet3d",
        what="3D segmentation, files of 147 MB",
        pass_share=PASS_SHARE,
        needs=(_need("A100", 7, 0.636), _need("H100", 7, 0.323), _need("B200", 7, 0.162)),
    ),
)


def find_workload(name: str) -> Workload | None:
    """By its name; None if it is not listed."""
    return next((each for each in WORKLOADS if each.name == name), None)
