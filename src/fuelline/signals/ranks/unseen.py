"""What the way a job is built, or recorded, hides from us, and which conclusions that forbids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.run.recording import Blindspot
from fuelline.schema.units import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.signals.ranks.hosts import HostView
    from fuelline.timeline.trainer import Trainer


def find_unseen(hosts: Sequence[HostView], trainer: Trainer | None) -> list[Blindspot]:
    """Everything that is hidden, for the rank that is judged."""
    trainers = sum(len(host.trainers) for host in hosts)
    found = []
    if any(host.run.ended_ns is None for host in hosts):
        found.append(
            Blindspot(
                what="how the job ended",
                why="it is still running, or its launcher was killed",
                forbids="its exit code and total time",
            )
        )
    if trainer is not None and trainer.rank is None and trainers > 1:
        found.append(
            Blindspot(
                what=f"{trainers - 1} further training processes",
                why="they took part in no collective that was seen; this is the one with the most "
                "steps",
                forbids="stragglers and waiting between them",
            )
        )
    ranks = max((facts.ranks or 0 for host in hosts for facts in host.processes), default=0)
    if ranks > trainers:
        found.append(
            Blindspot(
                what=f"{ranks - trainers} of {ranks} ranks",
                why="they left no steps in this recording",
                forbids="what they waited for, and blaming them",
            )
        )
    queueing = [each for host in hosts for each in host.processes if each.queues]
    if ranks > 1 and queueing and not any(host.arrivals.height for host in hosts):
        found.append(
            Blindspot(
                what="waits between ranks",
                why=f"with {queueing[0].backend} the host only queues collectives on its "
                "accelerator, whose own clock was not read",
                forbids="stragglers, and the latency and bandwidth between ranks",
            )
        )
    if trainer is not None and trainer.reader_tid != trainer.tid:
        found.append(
            Blindspot(
                what="how long the training thread waits for input, by the clock",
                why="another thread takes the batches from the loader; stack samples show what it "
                "does",
                forbids="separating short waits from none",
            )
        )
    if trainer is not None and trainer.step_kind == "train" and not trainer.train_sources:
        found.append(
            Blindspot(
                what="the clock of where the training data comes from",
                why=_why_unfed(hosts, trainer),
                forbids="telling short waits for input from none; stack samples show long ones",
            )
        )
    return [*found, *_find_clock_errors(hosts)]


def _find_clock_errors(hosts: Sequence[HostView]) -> list[Blindspot]:
    """How well the hosts' clocks agree, where that matters."""
    known = [host.offset.error_ns for host in hosts if host.offset.error_ns is not None]
    lost = [host.run.host for host in hosts if host.offset.error_ns is None]
    spots = []
    if lost:
        spots.append(
            Blindspot(
                what=f"how the clock of {', '.join(lost)} differs from {hosts[0].run.host}'s",
                why="no collective of both was recorded; their wall clocks are taken as they are",
                forbids="saying who waits for whom across them",
            )
        )
    if max(known) > 0:
        spots.append(
            Blindspot(
                what=f"differences under {duration(max(known) / 1e9)} between hosts",
                why="their clocks are aligned at collectives, to within that",
                forbids="calling a rank late by less",
            )
        )
    return spots


def why_no_steps(hosts: Sequence[HostView], trainer: Trainer | None) -> str:
    """Why there is nothing to judge."""
    if trainer is not None:
        return "fewer than two steps were seen. Record a longer stretch of training."
    if any(host.run.attached for host in hosts):
        return (
            "no two steps were seen while the job was looked at: it had not begun to train, had "
            "ended, or a step takes longer than that. Attach for longer (--seconds), or later."
        )
    if not any(host.processes for host in hosts):
        return (
            "no process of the job loaded PyTorch, TensorFlow or JAX with the hooks in place. A "
            "job without any, or a python started with -S, -I or -E, shows no steps."
        )
    return (
        f"{_loaded(hosts)} "
        "Processes that the job did not start, such as workers of a Ray cluster that ran before, "
        "are not seen."
    )


def _why_unfed(hosts: Sequence[HostView], trainer: Trainer) -> str:
    if _framework_of(hosts, trainer.pid) == "tensorflow":
        return "tf.data kept no account of the pipeline that feeds the steps, which run in a graph"
    return (
        "neither a loader with hooks nor a queue, a future or a pool of Python's feeds the steps; "
        "`for batch in fuelline.watch(source)` names the source"
    )


def _loaded(hosts: Sequence[HostView]) -> str:
    names = {facts.framework for host in hosts for facts in host.processes}
    if "tensorflow" in names:
        return (
            "TensorFlow was loaded, but no batch was taken in Python and Keras trained no model. A "
            "loop over a dataset inside a tf.function runs where no hook can look; with `for x, y "
            "in dataset: step(x, y)` outside of it, and only the step a tf.function, it is seen."
        )
    if names == {"jax"}:
        return "JAX was loaded, but no function that it compiled was called again and again."
    return "PyTorch was loaded, but no batch was taken from a DataLoader and no optimizer stepped."


def _framework_of(hosts: Sequence[HostView], pid: int) -> str:
    found = (facts for host in hosts for facts in host.processes if facts.pid == pid)
    return next((facts.framework for facts in found), "")
