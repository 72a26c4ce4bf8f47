"""What can be turned, what was tried, and what came of it. JSON of `fuelline tune --json`.

A Trial compares a changed job with the unchanged one, measured in turns; its verdict is never more
certain than its interval. New fields go last with a default.

Also here: how far a remedy may be applied without asking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from fuelline.schema.readings import Missing, Signal
from fuelline.schema.units import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fuelline.schema.run.recording import LoaderFacts

Applicability = Literal["safe", "unsafe", "display"]
"""safe: same samples, order, numbers. unsafe: may change results or memory. display: only shown."""


TUNING_VERSION = 1

KnobName = Literal[
    "num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "remote_workers"
]
"""The last one is no setting of a loader: `run --fix --ray` has workers on other hosts."""
TrialVerdict = Literal["faster", "slower", "same", "cannot tell"]
"""same: no more than the run-to-run difference apart, and the interval says so."""

_NOT_MEASURED = Missing(reason="not measured")
AS_GOOD = 0.03
"""Settings whose times differ by less are as good as each other, and a gain below it is not worth
showing: the same job differs by more than that from run to run (bench/RESULTS.md, predicted against
achieved gain)."""


class Setting(Struct, frozen=True, kw_only=True):
    """A value for a knob."""

    knob: KnobName
    value: int | bool

    def text(self) -> str:
        """As it is written in a call."""
        if self.knob == "remote_workers":
            return count(int(self.value), "worker") + " on other hosts"
        return f"{self.knob}={self.value}"


class Recommendation(Struct, frozen=True, kw_only=True):
    """The one loader setting that is recommended for a job: the same in every command's answer."""

    settings: list[Setting] = field(default_factory=list)
    """What to write into the DataLoader call, where it differs; empty: leave it as it is."""
    workers: int = 0
    """Then, whether it differs or not."""
    speedup: Signal = _NOT_MEASURED
    """Of the job, against itself as it is."""
    is_measured: bool = False
    """Whether `speedup` is from a trial on the job; otherwise the pipeline model predicts it."""
    limit_words: str = ""
    """What limits the job then."""
    why: str = ""
    cost: str = ""
    risk: str = ""
    """What it may change of the samples that training sees; empty if nothing."""
    written: str = ""
    """How the settings are written where it is no DataLoader that has them."""

    def text(self) -> str:
        """`DataLoader(..., num_workers=8)`; empty if nothing need change."""
        if self.settings and self.written:
            return self.written
        words = ", ".join(setting.text() for setting in self.settings)
        return f"DataLoader(..., {words})" if words else ""


RISK_OF_STAYING = (
    "workers keep their memory, and their copy of the dataset no longer sees set_epoch()"
)


def risk_of_workers(loader: LoaderFacts | None, workers: int) -> str:
    """What this number of workers may change."""
    if loader is None or loader.style != "iterable":
        return "random augmentation will draw different numbers; each worker needs memory"
    if workers <= 1:
        return "the order changes"
    return (
        "the dataset must split its samples by get_worker_info(), or each one comes "
        f"{workers} times; the order changes"
    )


TF_DATA = "tf.data"
"""`LoaderFacts.framework` of a pipeline of TensorFlow's."""


def write_threads(threads: int) -> str:
    """How a tf.data pipeline is given a pool of its own."""
    return (
        f"options = tf.data.Options(); options.threading.private_threadpool_size = {threads}; "
        "dataset = dataset.with_options(options)"
    )


BUFFERED = "dataset.prefetch(tf.data.AUTOTUNE) at the end of the pipeline"
"""How batches of a tf.data pipeline are made ahead."""


def name_setting(setting: Setting, framework: str) -> str:
    """A setting in a word or two of the source that has it."""
    if framework != TF_DATA:
        return setting.text()
    if setting.knob == "num_workers":
        return f"private_threadpool_size={setting.value}"
    return "a final prefetch" if setting.knob == "prefetch_factor" else setting.text()


def risk_of(settings: Iterable[Setting], loader: LoaderFacts | None) -> str:
    """What settings may change; a longer queue and pinned memory change nothing."""
    value = {setting.knob: int(setting.value) for setting in settings}
    risks = [risk_of_workers(loader, value["num_workers"])] if "num_workers" in value else []
    if value.get("persistent_workers"):
        risks.append(RISK_OF_STAYING)
    return "; ".join(risks)


class Trial(Struct, frozen=True, kw_only=True):
    """Settings that were tried on the running job."""

    settings: list[Setting]
    """What differs from the job as it is; empty for the job itself."""
    predicted: Signal = _NOT_MEASURED
    """Speedup by the pipeline model, before it was tried."""
    batches_per_s: list[float] = field(default_factory=list)
    """One a turn, in order."""
    speedup: Signal = _NOT_MEASURED
    """Against the job as it is, with a 95 % interval."""
    verdict: TrialVerdict = "cannot tell"


class Tuning(Struct, frozen=True, kw_only=True):
    """What `fuelline tune` found."""

    schema_version: int = TUNING_VERSION
    fuelline_version: str = ""
    now: list[Setting] = field(default_factory=list)
    """The job's own settings."""
    trials: list[Trial] = field(default_factory=list)
    """The job as it is first, then in the order of the prediction."""
    chosen: list[Setting] = field(default_factory=list)
    """The fewest resources that do as well as the best; empty if nothing need change."""
    steps: list[str] = field(default_factory=list)
    """Why each step was taken, in plain sentences."""
    trial_seconds: float = 0.0
    patch: str = ""
    """Unified diff of the script; empty if the call was not found or cannot be edited safely."""
    paste: str = ""
    """The settings to write by hand."""
    script: str = ""
    recommended: Recommendation | None = None
    """What the trials confirm: `chosen` with its gain and reason; null if nothing could be said."""
