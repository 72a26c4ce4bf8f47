"""A run as an object: where it is, what it says about itself, its tables, and what to ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from fuelline.schema.mistakes import tell_plainly

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import polars as pl

    from fuelline.schema.diagnosis.comparison import RunComparison
    from fuelline.schema.diagnosis.findings import Diagnosis
    from fuelline.schema.diagnosis.forecasts import Forecast
    from fuelline.schema.run.recording import Blindspot, RunFacts


class Run:
    """One job: a recording of it, or an imported trace. Made by `load`, `record`, `import_traces`.

    Nothing is read before it is asked for, and nothing is kept but the path: a run that is still
    going on can be asked again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The run's folder; copy it, and it can be read elsewhere."""
        return self._path

    @property
    @tell_plainly
    def facts(self) -> RunFacts:
        """What the run says about itself: command, host, start, end, exit code, versions."""
        from fuelline.pipeline.opened import read_facts  # noqa: PLC0415 - loads polars

        return read_facts(self.path)

    @property
    @tell_plainly
    def kind(self) -> Literal["recorded", "trace"]:
        """`recorded` by us, or an imported `trace` of a profiler: their tables differ."""
        from fuelline.ingest import is_trace  # noqa: PLC0415 - loads polars

        return "trace" if is_trace(self.path) else "recorded"

    @property
    @tell_plainly
    def blindspots(self) -> list[Blindspot]:
        """What could not be seen, why, and which conclusions that forbids."""
        from fuelline.pipeline.opened import read_blindspots  # noqa: PLC0415 - loads polars

        return read_blindspots(self.path)

    @property
    def tables(self) -> Tables:
        """Name to polars frame, each read when it is asked for; docs/api.md has the columns."""
        return Tables(self)

    def diagnose(self, *, usd_per_hour: float | None = None) -> Diagnosis:
        """See `fuelline.diagnose`."""
        from fuelline.api.answers import diagnose  # noqa: PLC0415 - which knows this file

        return diagnose(self, usd_per_hour=usd_per_hour)

    def whatif(self, **changes: Any) -> Forecast:
        """See `fuelline.whatif`."""
        from fuelline.api.questions import whatif  # noqa: PLC0415 - which knows this file

        return whatif(self, **changes)

    def suggest(self, *, usd_per_hour: float | None = None) -> list[Forecast]:
        """See `fuelline.suggest`."""
        from fuelline.api.answers import suggest  # noqa: PLC0415 - which knows this file

        return suggest(self, usd_per_hour=usd_per_hour)

    def compare(self, other: Run | str | Path, *, threshold: float | None = None) -> RunComparison:
        """What changed from this run to the other; see `fuelline.compare`."""
        from fuelline.api.answers import compare  # noqa: PLC0415 - which knows this file

        return compare(self, other, threshold=threshold)

    def __repr__(self) -> str:
        return f"<Run {self.path.name}: {self._describe()}>"

    def __fspath__(self) -> str:
        return str(self.path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def _describe(self) -> str:
        from fuelline.schema.errors import FuellineError  # noqa: PLC0415
        from fuelline.schema.units import duration  # noqa: PLC0415

        try:
            facts, kind = self.facts, self.kind
        except FuellineError as error:
            return f"cannot be read ({str(error).partition('. ')[0]})"
        words = "imported" if kind == "trace" else "recorded"
        if facts.ended_ns is None:
            return f"{words}, has not ended"
        lasted = duration((facts.ended_ns - facts.started_ns) / 1e9)
        ended = "" if kind == "trace" else f", exit code {facts.exit_code}"
        return f"{words}, {lasted}{ended}, {' '.join(facts.command)[:60]}"


class Tables(Mapping[str, "pl.DataFrame"]):
    """A run's tables by name; all hosts or ranks together, the first column says which."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @tell_plainly
    def __getitem__(self, name: str) -> pl.DataFrame:
        from fuelline.pipeline.opened import read_tables  # noqa: PLC0415 - loads polars

        return read_tables(self._run.path, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __repr__(self) -> str:
        return f"<Tables of {self._run.path.name}: {', '.join(self._names())}>"

    @tell_plainly
    def _names(self) -> tuple[str, ...]:
        from fuelline.pipeline.opened import list_tables  # noqa: PLC0415 - loads polars

        return list_tables(self._run.path)
