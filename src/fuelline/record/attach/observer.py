"""The observer of a job that was not started by us: what `record/observer.py` does, and more.

    python -m fuelline.record.attach.observer --run-dir DIR --root-pid PID --trainers 1,2 --tier T1

No hook tells what the training does. At T1 stacks do: py-spy samples each trainer in pieces of some
seconds, and only when a piece is there is it known what the trainer did, so thread states wait for
it. At T0 the system call that the trainer is blocked in is all there is: in poll or read on a pipe
it waits for its workers.
"""

import bisect
import gc
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from pathlib import Path

from fuelline.record.attach.counters import Look, look
from fuelline.record.attach.estimate import (
    LEAST_NS,
    OWN_SOURCE_ID,
    PartSpan,
    WorkerWriter,
    clip,
    close_gaps,
    count_batches,
    with_epoch_starts,
)
from fuelline.record.attach.frames import (
    Part,
    Stack,
    parse_frame,
)
from fuelline.record.attach.loops import (
    FEW_READINGS,
    LoopCounter,
    batches_per_step,
    find_pace,
    is_clear,
)
from fuelline.record.attach.pieces import MOST_CORE_SHARE, PieceRecorder, StackPiece
from fuelline.record.attach.processes import (
    find_device_files,
    find_variables,
    is_loader_worker,
    is_named_worker,
    look_at,
)
from fuelline.record.attach.spools import EstimatedSpool
from fuelline.record.attach.states import AttachedPhases, WaitingStates
from fuelline.record.attach.trainer import RATE, TrainerView
from fuelline.record.observer import MS, Alarm, Observer, S
from fuelline.record.pace import Task
from fuelline.record.samplers.phases import Phases
from fuelline.record.samplers.stacks import Sources, find_py_spy
from fuelline.record.samplers.threads import ThreadStates, is_python
from fuelline.record.samplers.tree import Process
from fuelline.schema.redaction import redact
from fuelline.schema.run.recording import PYTHON_SOURCE
from fuelline.schema.run.samples import Blind, Row, StackSample

LEAST_RATE = 10
MOST_TRAINERS = 8
PIECE_S = 8
FIRST_PIECE_S = 3
"""A first one that is short, so that something can be said soon."""
WORKER_BUDGET = 0.02
"""Of a core, for stacks of workers."""
HELD_NS = 64 * S
"""Stacks that are gathered before steps are laid out: steps that were laid out before a source of
batches, a backward pass or the loop's own counters were seen cannot be mended."""
FEEDER = "QueueFeederThread"
_FEED_FILE = "/multiprocessing/queues.py"
_FETCH_FILE = re.compile(r"/torch/utils/data/_utils/fetch\.py$")
_COLLATE_FILE = re.compile(r"/torch/utils/data/_utils/collate\.py$")
_WAITING = frozenset({"pipe"})
"""States of the main thread that mean at T0 that it waits for its workers."""


class AttachedObserver(Observer):
    """All samplers of one running job, and what becomes of their samples."""

    def __init__(
        self, run_dir: Path, root_pid: int, trainers: dict[int, str], tier: str, piece_s: int
    ) -> None:
        self._piece_s = piece_s
        self._trainer_pids = frozenset(trainers)
        self._frameworks = trainers
        self._is_t1 = tier != "T0"
        self._run_dir = run_dir
        self._binary = find_py_spy() if self._is_t1 else None
        self._found: dict[int, TrainerView] = {}
        self._recorders: dict[int, PieceRecorder] = {}
        self._sources = Sources()
        self._texts: dict[tuple[str, int], str] = {}
        super().__init__(run_dir, root_pid)
        self._stacks.spend_more(WORKER_BUDGET)
        self._tree.offer(self._trainer_pids)

    def _make_phases(self, run_dir: Path) -> Phases:
        self._attached = AttachedPhases(run_dir / "spool", self._trainer_pids)
        return self._attached

    def _make_threads(self) -> ThreadStates:
        self._states = WaitingStates(self._tree, self._attached, self._resolver)
        return self._states

    def _list_helpers(self) -> frozenset[int]:
        ours = [each.helper_pid for each in self._recorders.values()]
        ours += [each.counter.helper_pid for each in self._found.values() if each.counter]
        return self._stacks.pids | {pid for pid in ours if pid is not None}

    def _sample_stacks(self, now_ns: int) -> None:
        """Of workers only, in bursts; the trainers' come in pieces."""
        rows = self._stacks.collect(now_ns)
        self._journal.add(rows)
        self._note_collating(rows)
        if self._is_t1 and self._found:
            workers = [pid for each in self._found.values() for pid in each.slots]
            self._stacks.start_if_due(now_ns, [], workers)

    def _note_collating(self, rows: Sequence[Row]) -> None:
        """How much of the fetching is joining samples to a batch, by the stacks of workers."""
        for row in rows:
            if not isinstance(row, StackSample):
                continue
            files = [parse_frame(frame).file for frame in row.frames]
            owner = next((each for each in self._found.values() if row.pid in each.workers), None)
            if owner is not None and any(map(_FETCH_FILE.search, files)):
                owner.collate[any(map(_COLLATE_FILE.search, files))] += row.count

    def _list_tasks(self) -> list[Task]:
        """Those of every observer, and ours."""
        return [
            *super()._list_tasks(),
            Task("looks", self._look, 500 * MS, 0.01),
            Task("pieces", self._take_pieces, 200 * MS, 0.02),
        ]

    def finish(self) -> None:
        """Take what the last pieces have."""
        now_ns = time.monotonic_ns()
        self._look(now_ns)
        for pid in list(self._recorders):
            self._take_piece(pid, at_once=True)
        if not self._is_t1:
            self._guess(now_ns)
        for trainer in self._found.values():
            trainer.known_ns = now_ns
        for trainer in self._found.values():
            self._lay(trainer, now_ns, at_last=True)
        for trainer in self._found.values():
            self._settle(trainer, now_ns + 1)
            if trainer.counter is not None:
                trainer.counter.stop()
            trainer.spool.close()
            for _, spool in trainer.workers.values():
                spool.close()
        self._states.settle(0, now_ns + 1, lambda _at: None)
        super().finish()

    def _look(self, now_ns: int) -> None:
        for pid in self._trainer_pids & self._tree.processes.keys():
            process = self._tree.processes[pid]
            trainer = self._found.get(pid)
            if trainer is None:
                trainer = self._meet(process, now_ns)
            workers = self._workers_of(pid)
            self._meet_workers(trainer, workers, now_ns)
            trainer.looks.append(look(process, workers, now_ns))
            trainer.first = trainer.first or trainer.looks[0]
            trainer.laid_ns = trainer.laid_ns or now_ns
            trainer.met_ns = trainer.met_ns or now_ns
        if not self._is_t1 and self._seconds % 4 == 0:
            self._guess(now_ns)

    def _meet(self, process: Process, now_ns: int) -> TrainerView:
        framework = self._frameworks.get(process.pid, "")
        trainer = TrainerView(process.pid, process.ppid, self._run_dir / "spool", framework)
        self._found[process.pid] = trainer
        trainer.steps.describe_process({"framework": framework}, now_ns)
        rank = find_variables(process.pid)
        if rank.get("RANK", "").isdigit() and rank.get("WORLD_SIZE", "").isdigit():
            ranks = int(rank["WORLD_SIZE"])
            local = int(rank["LOCAL_RANK"]) if rank.get("LOCAL_RANK", "").isdigit() else -1
            if ranks > 1:
                trainer.ranks = trainer.steps.ranks = ranks
                trainer.has_device = bool(find_device_files(process.pid))
                trainer.steps.describe_rank(int(rank["RANK"]), ranks, local, now_ns)
        return trainer

    def _workers_of(self, trainer: int) -> list[Process]:
        """Python processes right below a trainer, other trainers apart."""
        return [
            each
            for each in self._tree.processes.values()
            if each.ppid == trainer and each.pid not in self._trainer_pids and is_python(each)
        ]

    def _meet_workers(self, trainer: TrainerView, workers: list[Process], now_ns: int) -> None:
        alive = {each.pid for each in workers}
        for pid in [pid for pid in trainer.slots if pid not in alive]:
            del trainer.slots[pid]
        for process in workers:
            if process.pid in trainer.workers:
                continue
            seen, parent = look_at(process.pid), look_at(trainer.pid)
            if seen is None or not is_loader_worker(seen, parent):
                continue
            # A pool's processes look the same, but nobody's queue feeds them.
            if self._is_t1 and not trainer.feeders and not is_named_worker(seen):
                continue
            taken = set(trainer.slots.values())
            number = next(each for each in range(len(taken) + 1) if each not in taken)
            trainer.slots[process.pid] = number
            spool = EstimatedSpool(self._run_dir / "spool", process.pid, trainer.pid)
            trainer.workers[process.pid] = WorkerWriter(spool, number), spool
            trainer.steps.introduce_worker(number, process.pid, now_ns)
            trainer.steps.has_input = True

    def _take_pieces(self, now_ns: int) -> None:
        if not self._is_t1 or self._binary is None:
            return
        pids = sorted(self._found.keys() & self._tree.processes.keys())[:MOST_TRAINERS]
        rate = max(LEAST_RATE, RATE // max(1, len(pids)))
        for pid in pids:
            if pid not in self._recorders:
                share = MOST_CORE_SHARE / len(pids)
                self._recorders[pid] = PieceRecorder(self._binary, pid, rate, share)
                self._sources.meet(pid)
                self._recorders[pid].start(FIRST_PIECE_S)
            else:
                self._take_piece(pid)
                self._count_loops(self._found[pid], now_ns)

    def _count_loops(self, trainer: TrainerView, now_ns: int) -> None:
        """Read the loop's own counters: of steps, where workers' batches are counted as well."""
        functions = trainer.find_loops()
        if functions and self._binary is not None:
            trainer.counter = trainer.counter or LoopCounter(self._binary, trainer.pid)
            trainer.counter.take_turn(now_ns, functions=functions)

    def _take_piece(self, pid: int, *, at_once: bool = False) -> None:
        recorder = self._recorders[pid]
        piece = recorder.take(at_once=at_once)
        if piece is None:
            return
        trainer = self._found[pid]
        if not at_once and pid in self._tree.processes and len(trainer.problems) < 4:
            recorder.start(self._piece_s)
        if pid not in piece.threads and pid not in self._tree.processes:
            return  # it has ended, as jobs do
        if piece.problem or pid not in piece.threads:
            self._note_problem(trainer, piece.problem or "the main thread was not seen")
            return
        trainer.problems.clear()
        stacks = list(self._stack_rows(piece))
        self._journal.add(stacks)
        lines = list(self._sources.read(stacks))
        self._texts |= {(each.file, each.line): each.text for each in lines}
        self._journal.add(lines)
        self._note_feeders(trainer, piece)
        spans = [span for span, _ in trainer.find_spans(piece, self._texts)]
        known = trainer.spans[-1].end_ns if trainer.spans else trainer.laid_ns
        prepared_ns = self._time_of_batch(trainer)
        trainer.spans += with_epoch_starts(close_gaps(spans, known), prepared_ns)
        trainer.turns.add(spans)
        trainer.skip_start_up()
        trainer.steps.notice(span.part for span in spans)
        self._lay(trainer, piece.end_ns)

    def _time_of_batch(self, trainer: TrainerView) -> float:
        """Nanoseconds that a batch takes to prepare at most: its worker has so many to itself."""
        first, last = trainer.first, trainer.looks[-1] if trainer.looks else None
        if first is None or last is None:
            return inf
        asked = count_batches(first, last, self._choose_feeders(trainer))
        lasted_ns = last.at_ns - first.at_ns
        if not asked:
            steps = trainer.turns.seen_per_s()
            return S / steps if steps else inf
        return max(1, len(trainer.slots)) * lasted_ns / asked

    def _note_problem(self, trainer: TrainerView, why: str) -> None:
        trainer.problems.append(why)
        if len(trainer.problems) == 4:
            self._journal.add([
                Blind(f"the stacks of process {trainer.pid}", redact(why),
                      "phases, stages and lines of code of that process")
            ])  # fmt: skip

    def _stack_rows(self, piece: StackPiece) -> Iterator[StackSample]:
        """The stacks of a piece without their times, as all other readers of stacks know them."""
        for tid, stretches in piece.threads.items():
            spent: Counter[Stack] = Counter()
            for each in stretches:
                spent[each.stack] += each.end_ns - each.start_ns
            for stack, length_ns in spent.items():
                count = round(length_ns * RATE / S)
                if count and stack:
                    frames = [redact(str(frame)) for frame in stack]
                    yield StackSample(piece.start_ns, piece.end_ns, piece.pid, tid, frames, count)

    def _note_feeders(self, trainer: TrainerView, piece: StackPiece) -> None:
        for tid, stretches in piece.threads.items():
            is_queue = piece.names.get(tid, "").startswith(FEEDER)
            if is_queue or (tid != piece.pid and any(_feeds(each.stack) for each in stretches[:8])):
                trainer.feeders.add(tid)

    def _settle(self, trainer: TrainerView, until_ns: int) -> None:
        """Let samples count whose moment is known by now."""
        starts = [span.start_ns for span in trainer.spans]

        def find(at_ns: int) -> Part | None:
            at = bisect.bisect_right(starts, at_ns) - 1
            if at < 0 or trainer.spans[at].end_ns < at_ns - S // 5:
                return None
            return trainer.spans[at].part

        for part, is_running in self._states.settle(trainer.pid, until_ns, find):
            trainer.activity.add(part, is_running=is_running)

    def _guess(self, now_ns: int) -> None:
        """T0: spans of the main thread from the states that it was seen in."""
        for trainer in self._found.values():
            moments = self._states.guesses.pop(trainer.pid, [])
            spans = [
                PartSpan(at, following, "input" if state in _WAITING else "forward")
                for (at, state), (following, _) in pairwise(moments)
            ]
            if not spans:
                continue
            trainer.spans += close_gaps(
                spans, trainer.spans[-1].end_ns if trainer.spans else trainer.laid_ns
            )
            self._lay(trainer, spans[-1].end_ns)

    def _is_understood(self, trainer: TrainerView) -> bool:
        """Whether its loop was seen whole, or for so long that no more is to be expected.

        While somebody watches, as soon as its parts and its counters were seen.
        """
        is_counted = trainer.counter is not None and trainer.counter.readings >= FEW_READINGS
        is_whole = trainer.steps.has_input and trainer.steps.learns and is_counted
        is_live = self._piece_s < PIECE_S
        return (is_live and is_whole) or trainer.known_ns - trainer.met_ns > HELD_NS

    def _lay(self, trainer: TrainerView, until_ns: int, *, at_last: bool = False) -> None:
        """Write steps and fetches up to a moment until which everything is known.

        Ranks of one job step together: theirs are laid out together, with the same numbers.
        """
        trainer.known_ns = until_ns
        group = [trainer]
        if trainer.ranks > 1:
            group = [each for each in self._found.values() if each.ranks == trainer.ranks]
        until_ns = min(each.known_ns for each in group)
        if not at_last and not all(map(self._is_understood, group)):
            return
        for each in group:
            each.settle_source()
            self._settle(each, until_ns)
            self._describe(each, max(each.known_ns for each in group))
        self._lay_together(group, until_ns)
        for each in group:
            each.looks = [look for look in each.looks if look.at_ns >= each.laid_ns]
            each.spans = [span for span in each.spans if span.end_ns >= each.laid_ns - S]
            each.spool.flush()
            for _, spool in each.workers.values():
                spool.flush()

    def _lay_together(self, group: list[TrainerView], until_ns: int) -> None:
        begin_ns = max(each.laid_ns for each in group)
        before = [each.first_look(begin_ns) for each in group]
        moments = [look.at_ns for look in group[0].looks if look.at_ns <= until_ns]
        for at_ns in moments:
            after = [each.find_look(at_ns) for each in group]
            pairs = list(zip(group, before, after, strict=True))
            if any(old is None or new is None or new.at_ns <= old.at_ns for _, old, new in pairs):
                before = [old or new for _, old, new in pairs]
                continue
            known = [(each, old, new) for each, old, new in pairs if old and new]
            grown = max(self._count(*each) + each[0].left_over for each in known)
            per_step = self._batches_per_step(group[0], known[0][2])
            count = int(grown) // per_step
            for each, _, new in known:
                each.asked = each.laid + int(grown)
                self._write_fetches(each, new)
            is_seen = all(clip(each.spans, old.at_ns, new.at_ns) for each, old, new in known)
            is_long = all(new.at_ns - old.at_ns >= LEAST_NS for _, old, new in known)
            if count < 1 or not is_seen or not is_long:
                continue
            for each, old, new in known:
                self._lay_window(each, old, new, count, per_step)
                each.left_over = grown - count * per_step
            before = list(after)

    def _count(self, trainer: TrainerView, before: Look, after: Look) -> float:
        """Batches between two looks: whole ones by workers' queues, else by the loop's own pace."""
        feeders = self._choose_feeders(trainer)
        if feeders:
            return count_batches(before, after, feeders)
        recorder = self._recorders.get(trainer.pid)
        likely = trainer.turns.steps_per_s(RATE if recorder is None else recorder.rate)
        values = {} if trainer.counter is None else trainer.counter.values
        pace = find_pace(values, trainer.turns.seen_per_s(), likely)
        if pace is not None:
            return pace.batches_until(after.at_ns) - pace.batches_until(before.at_ns)
        spans = clip(trainer.spans, before.at_ns, after.at_ns)
        return likely * sum(each.end_ns - each.start_ns for each in spans if is_clear(each)) / S

    def _batches_per_step(self, trainer: TrainerView, after: Look) -> int:
        """One, but for loops that take several batches in a turn."""
        feeders, first = self._choose_feeders(trainer), trainer.first
        if not feeders or trainer.counter is None or first is None:
            return 1
        batches_per_s = count_batches(first, after, feeders) / (after.at_ns - first.at_ns) * S
        return batches_per_step(trainer.counter.values, batches_per_s)

    def _lay_window(
        self, trainer: TrainerView, before: Look, after: Look, count: int, per_step: int
    ) -> None:
        feeders = self._choose_feeders(trainer)
        spans = clip(trainer.spans, before.at_ns, after.at_ns)
        spent = trainer.activity.correct(spans, *_active(before, after))
        if trainer.ranks > 1 and not trainer.has_device:
            spent = trainer.activity.with_waits_in_backward(spent)
        fetch = None
        if not trainer.workers and not feeders and not trainer.takes_from_queue:
            fetch = self._own_fetch(trainer, before, after, count)
        trainer.steps.lay(
            spans, spent, before.at_ns, after.at_ns, count, per_step=per_step, fetch=fetch
        )
        trainer.laid += count * per_step
        trainer.laid_ns = after.at_ns

    def _choose_feeders(self, trainer: TrainerView) -> set[int]:
        """Threads that send the workers their orders; at T0 all that write, beside the main one."""
        if self._is_t1:
            return trainer.feeders
        return {tid for each in trainer.looks for tid in each.writes} if trainer.workers else set()

    def _write_fetches(self, trainer: TrainerView, after: Look) -> None:
        frac = trainer.collate[True] / max(1, sum(trainer.collate.values()))
        for pid, work in after.workers.items():
            if pid not in trainer.workers:
                continue
            stays = self._states.stays.pop(pid, [])
            self._states.stays[pid] = [each for each in stays if each.window_ns >= after.at_ns]
            past = [each for each in stays if each.window_ns < after.at_ns]
            per_batch = trainer.messages_per_batch()
            trainer.workers[pid][0].take(
                after.at_ns, work, past, collate_frac=frac, per_batch=per_batch
            )

    def _own_fetch(
        self, trainer: TrainerView, before: Look, after: Look, count: int
    ) -> dict[str, float]:
        """What the trainer's own fetches are made of, without workers."""
        stays = [each for each in self._states.stays.pop(trainer.pid, []) if each.waits]
        seen = sum(each.looks for each in stays)
        running = sum(each.looks for each in stays if each.state == "running")
        ready = running / seen if seen else 1.0
        cpu_ns = after.clock_ns[0] - before.clock_ns[0]
        queued_ns = after.clock_ns[1] - before.clock_ns[1]
        on_core = cpu_ns / (cpu_ns + queued_ns) if cpu_ns + queued_ns > 0 else 1.0
        frac = trainer.collate[True] / max(1, sum(trainer.collate.values()))
        return {
            "cpu": ready * on_core, "queued": ready * (1 - on_core), "collate": frac,
            "read_bytes": -1, "disk_bytes": -1, "calls": -1, "faults": -1,
        }  # fmt: skip

    def _describe(self, trainer: TrainerView, now_ns: int) -> None:
        """The loader's settings as soon as there is a loader."""
        if trainer.is_described or not trainer.steps.has_input:
            return
        trainer.is_described = True
        own = {"loader": "a queue", "framework": PYTHON_SOURCE}
        usual = {"num_workers": len(trainer.slots), **trainer.settings}
        is_own = trainer.steps.source_id == OWN_SOURCE_ID
        trainer.steps.describe_source(own if is_own else usual, now_ns)


def _feeds(stack: Stack) -> bool:
    """Whether a thread writes what is put into a queue to its pipe."""
    return any(each.function.endswith("_feed") and each.file.endswith(_FEED_FILE) for each in stack)


def _active(before: Look, after: Look) -> tuple[int, int]:
    """Nanoseconds between two looks, and how long the main thread ran or was ready; -1: unknown."""
    if before.clock_ns[0] < 0 or after.clock_ns[0] < 0:
        return after.at_ns - before.at_ns, -1
    return after.at_ns - before.at_ns, sum(after.clock_ns) - sum(before.clock_ns)


def attach(run_dir: Path, root_pid: int, trainers: dict[int, str], tier: str, piece_s: int) -> None:
    """Watch until told to leave, or until the job is over."""
    bell = Alarm(root_pid)
    observer = AttachedObserver(run_dir, root_pid, trainers, tier, piece_s)
    gc.freeze()
    observer.start()
    while observer.sees_the_job and not bell.must_leave and not observer.is_in_the_way:
        if bell.sleep(observer.take_turns()):
            observer.note_end_of()
    observer.finish()


def main(arguments: list[str]) -> int:
    """Entry of the process."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=False))
    trainers = dict(each.split(":", 1) for each in options["--trainers"].split(","))
    try:
        attach(
            Path(options["--run-dir"]),
            int(options["--root-pid"]),
            {int(pid): framework for pid, framework in trainers.items()},
            options["--tier"],
            int(options.get("--piece", PIECE_S)),
        )
    except OSError as error:
        sys.stderr.write(f"The observer cannot work here: {error}\n")
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
