"""The step log of a device simulator: a line for each kernel.

    # steplog 1
    0,7,1000,1800,gemm
    0,7,1900,2400,softmax

Columns: device, stream, start and end in microseconds, name of the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.plugins import DeviceKind, Imported, InputError, RankFacts, SourceFacts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fuelline.plugins import PartWriter

FIRST_LINE = b"# steplog 1\n"


class StepLog:
    """The importer."""

    format = "steplog"

    def recognises(self, head: bytes) -> bool:
        """By its first line."""
        return head.startswith(FIRST_LINE)

    def read(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> Imported:
        """All of a file; `partial` leaves out a last line that was cut short."""
        data = path.read_bytes()
        rows = [line.split(",") for line in data.decode().splitlines()[1:]]
        if partial and rows and len(rows[-1]) != 5:
            rows.pop()
        try:
            spans = [(int(d), int(s), int(a) * 1000, int(b) * 1000, k) for d, s, a, b, k in rows]
        except ValueError as error:
            raise InputError(
                f"{path} has a line that is no kernel ({error}). Nothing was imported. Copy the "
                "file again, or read what there is with --partial."
            ) from None
        names = {name: number for number, name in enumerate(dict.fromkeys(row[4] for row in spans))}
        writer.add(
            "device",
            rank,
            pl.DataFrame(
                [(*span[:4], names[span[4]], int(DeviceKind.KERNEL)) for span in spans],
                schema=["device", "stream", "start_ns", "end_ns", "name", "kind"],
                orient="row",
            ),
        )
        writer.add("names", rank, pl.DataFrame({"name": list(names.values()), "text": list(names)}))
        advance(len(data))
        source = SourceFacts(
            file=path.name, format=self.format, size_bytes=len(data), events=len(spans)
        )
        return Imported(source=source, ranks=[RankFacts(rank=rank, is_rank_known=False)])
