"""DCGM: scrapes of dcgm-exporter, one or many in a file, as counters of devices; a host is a rank.

A scrape ends where a series appears again. Scrapes that carry no time are counted, and nothing that
needs seconds is concluded from them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest.dcgm.exposition import CutShortError, read_samples
from fuelline.ingest.dcgm.fields import FIELDS, is_blank
from fuelline.ingest.importer import Imported
from fuelline.ingest.spans import write
from fuelline.ingest.unpack import read_blocks
from fuelline.schema.errors import InputError
from fuelline.schema.run.trace import ChipFacts, Quality, RankFacts, SourceFacts
from fuelline.timeline.tables import MOST_NS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fuelline.ingest.dcgm.exposition import Sample
    from fuelline.ingest.importer import PartWriter

_HEAD = re.compile(rb"^(?:# (?:HELP|TYPE) )?DCGM_FI_[A-Z0-9_]+[ {]", re.MULTILINE)
_SECOND_NS = 1_000_000_000
_MOST_TEXT = 200


class Dcgm:
    """The importer of dcgm-exporter's scrapes."""

    format = "dcgm"

    def recognises(self, head: bytes) -> bool:
        """A line that begins with a field of DCGM."""
        return _HEAD.search(head) is not None

    def read(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> Imported:
        """See `Importer`."""
        scrapes = _Scrapes()
        quality = []
        try:
            for sample in read_samples(path, read_blocks(path, advance)):
                scrapes.take(sample)
        except CutShortError as error:
            if not partial:
                raise
            quality.append(Quality(problem=str(error), forbids="its last value", code="truncated"))
        if not scrapes.values:
            raise InputError(
                f"{path} was read to its end at byte {path.stat().st_size} and holds no value of "
                "DCGM that is known. Nothing was imported. dcgm-exporter must export "
                "DCGM_FI_DEV_GPU_UTIL and DCGM_FI_PROF_* fields."
            )
        return scrapes.write(path, rank, writer, quality)


@dataclass
class _Device:
    """One series of labels that means a device."""

    number: int
    model: str
    uuid: str


@dataclass
class _Scrapes:
    """Values by host and device, in the order in which they came."""

    values: list[tuple[str, int, int | None, int, str, float]] = field(default_factory=list)
    """Host, device, time, scrape, name, value."""
    devices: dict[str, dict[str, _Device]] = field(default_factory=dict)
    """Host to device by its labels."""
    scrape: int = 0
    samples: int = 0
    odd: int = 0
    _seen: set[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=set)

    def take(self, sample: Sample) -> None:
        """One value; a series that was seen already begins the next scrape."""
        self.samples += 1
        known = FIELDS.get(sample.name)
        labels = dict(sample.labels)
        if known is None or "gpu" not in labels or is_blank(sample.value):
            return
        series = (sample.name, sample.labels)
        if series in self._seen:
            self._seen = set()
            self.scrape += 1
        self._seen.add(series)
        value = sample.value * known.factor
        time_ns = sample.time_ns
        is_far = time_ns is not None and not -MOST_NS < time_ns < MOST_NS
        if value < 0 or value == float("inf") or (known.most is not None and value > known.most):
            self.odd += 1
        elif not is_far:
            host, device = labels.get("Hostname", ""), self._device(labels)
            self.values.append((host, device.number, time_ns, self.scrape, known.name, value))

    def _device(self, labels: dict[str, str]) -> _Device:
        """A device has a number on its host; a slice of one has its own number."""
        on_host = self.devices.setdefault(labels.get("Hostname", ""), {})
        key = f"{labels.get('UUID') or labels['gpu']}/{labels.get('GPU_I_ID', '')}"
        if key not in on_host:
            taken = {device.number for device in on_host.values()}
            number = int(labels["gpu"]) if re.fullmatch(r"\d{1,5}", labels["gpu"]) else 0
            if number in taken:
                number = max(taken) + 1
            on_host[key] = _Device(
                number,
                labels.get("modelName", "")[:_MOST_TEXT],
                labels.get("UUID", "")[:_MOST_TEXT],
            )
        return on_host[key]

    def write(self, path: Path, rank: int, writer: PartWriter, quality: list[Quality]) -> Imported:
        """The tables, and what is left to say."""
        columns = ("host", "device", "time_ns", "scrape", "name", "value")
        kinds = (pl.String, pl.Int32, pl.Int64, pl.Int64, pl.String, pl.Float64)
        frame = pl.DataFrame(
            self.values, schema=dict(zip(columns, kinds, strict=True)), orient="row"
        ).with_columns(at_ns=pl.col("time_ns").fill_null(pl.col("scrape") * _SECOND_NS))
        ranks = []
        for place, host in enumerate(self.devices):
            number = rank * len(self.devices) + place
            own = frame.filter(pl.col("host") == host)
            write(writer, "counters", number, own)
            ranks.append(self._describe(number, host, own))
        return Imported(
            source=SourceFacts(
                file=path.name,
                format=Dcgm.format,
                size_bytes=path.stat().st_size,
                ranks=[each.rank for each in ranks],
                events=self.samples,
            ),
            ranks=ranks,
            quality=[*quality, *self._quality()],
        )

    def _describe(self, rank: int, host: str, own: pl.DataFrame) -> RankFacts:
        devices = sorted(self.devices[host].values(), key=lambda device: device.number)
        return RankFacts(
            rank=rank,
            host=host[:_MOST_TEXT],
            chips=[ChipFacts(device=each.number, name=each.model) for each in devices],
            is_rank_known=False,
            settings={
                "scrapes": str(own["scrape"].n_unique()),
                "times": "recorded" if own["time_ns"].null_count() == 0 else "counted",
                **{f"uuid {each.number}": each.uuid for each in devices if each.uuid},
            },
        )

    def _quality(self) -> list[Quality]:
        if not self.odd:
            return []
        return [
            Quality(
                problem=f"{self.odd} values are impossible (negative, or shares above 1); left out",
                forbids="readings that depend on them",
                code="insane",
            )
        ]
