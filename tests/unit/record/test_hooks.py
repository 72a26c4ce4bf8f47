"""The hooks one by one: guarded, restorable, and right about what they record."""

import gc
import os
import pickle
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, IterableDataset, dataloader
from torch.utils.data._utils import fetch
from torch.utils.data._utils import pin_memory as pinning

from fuelline.record import spool as spooling
from fuelline.record.buffer import PLAIN
from fuelline.record.hooks import hook as hooking
from fuelline.record.hooks import threadclock
from fuelline.record.hooks.hook import FAULTS_UNTIL_OFF, Hook
from fuelline.record.hooks.threadclock import ThreadClockReader
from fuelline.record.hooks.torch import batches, training, transfer
from fuelline.record.hooks.torch.install import Installation
from fuelline.record.spool import Spool
from fuelline.schema.wire import Flag, Kind, Phase
from tests.integration.harness import Left, read_spools


def act_on_loaded(name: str, action: Callable[[], None]) -> None:
    if name in sys.modules:
        action()


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    monkeypatch.setattr(spooling, "HOLD_NS", 0)
    installation = Installation(Spool(f"{tmp_path}/spool"))
    yield installation
    installation.uninstall()


@pytest.fixture
def hooked(installation: Installation) -> Installation:
    installation.add_all(act_on_loaded)
    return installation


def read(tmp_path: Path) -> Left:
    (left,) = read_spools(tmp_path)
    return left


def originals() -> list[Any]:
    owners = (
        (torch.autograd, "backward"),
        (torch.Tensor, "to"),
        (torch.Tensor, "backward"),
        (torch, "save"),
        (torch.serialization, "save"),
        (torch.cuda, "synchronize"),
        (torch.accelerator, "synchronize"),
        (dataloader.DataLoader, "__iter__"),
        (dataloader._BaseDataLoaderIter, "__next__"),
        (fetch._MapDatasetFetcher, "fetch"),
        (fetch._IterableDatasetFetcher, "fetch"),
        (pinning, "pin_memory"),
        (torch.Tensor, "to"),
        (torch.Tensor, "item"),
        (ForkingPickler, "dumps"),
    )
    return [vars(owner).get(name) for owner, name in owners]


def test_uninstall_restores_every_original(installation: Installation) -> None:
    before, collectors = originals(), list(gc.callbacks)
    installation.add_all(act_on_loaded)
    for function in ("install_copies", "install_reads"):
        installation.add("transfer", function)
    installation.add("device_clock", "install")
    assert originals() != before
    installation.uninstall()
    assert all(now is then for now, then in zip(originals(), before, strict=True))
    assert gc.callbacks == collectors
    assert not optimizers._global_optimizer_pre_hooks
    assert not optimizers._global_optimizer_post_hooks


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(100))


def test_hooks_go_in_the_midst_of_a_stream_which_has_no_length(hooked: Installation) -> None:
    iterator = iter(DataLoader(Endless(), batch_size=4))
    next(iterator)
    assert any("fuelline" in name for name in vars(iterator))
    hooked.uninstall()
    assert not any("fuelline" in name for name in vars(iterator))
    next(iterator)


def test_uninstall_leaves_alone_what_others_have_wrapped_since(hooked: Installation) -> None:
    ours = torch.save

    def theirs(*args: Any, **kwargs: Any) -> None:
        ours(*args, **kwargs)

    torch.save = theirs
    try:
        hooked.uninstall()
        assert torch.save is theirs
    finally:
        torch.save = torch.serialization.save


def test_a_part_of_torch_that_does_not_fit_is_a_blindspot(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(dataloader, "_BaseDataLoaderIter")
    installation.add_all(act_on_loaded)
    left = read(tmp_path)
    assert left.faults == 1
    assert [blind["what"] for blind in left.blindspots()] == ["hooks loader"]


class Failing(Hook):
    name = "failing"
    forbids = "nothing"

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        raise ZeroDivisionError(ticket)


class FailingEarly(Failing):
    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return [][args[0]]


@pytest.mark.parametrize("kind", [Failing, FailingEarly])
def test_a_failing_hook_is_counted_told_once_and_then_off(
    installation: Installation, tmp_path: Path, kind: type[Hook], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooking, "_OUR_ROOT", str(Path(__file__).parents[3]))
    hook = kind(installation.guest)
    double = hook.wrap(lambda number: number * 2)
    assert [double(number) for number in range(10)] == [number * 2 for number in range(10)]
    left = read(tmp_path)
    assert left.faults == FAULTS_UNTIL_OFF
    assert [blind["what"] for blind in left.blindspots()] == ["hook failing"]
    assert not hook.is_on


class Interrupted(Failing):
    """The job's signal handler runs, and raises, while the hook does."""

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)
        return sum(range(1000))


def test_what_a_signal_handler_raises_in_a_hook_reaches_the_job(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooking, "_OUR_ROOT", str(Path(training.__file__).parents[2]))

    def handler(*_: object) -> None:
        raise TimeoutError("the job's own")

    hook = Interrupted(installation.guest)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutError, match="the job's own"):
            hook.wrap(lambda: None)()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert hook.is_on


def test_the_job_sees_hardly_any_frame_of_ours_in_its_traceback(hooked: Installation) -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.autograd.backward(torch.ones(1))
    ours = [entry for entry in caught.traceback if "/record/hooks/" in str(entry.path)]
    assert len(ours) <= 2


def phases_of(hooked: Installation, tmp_path: Path) -> list[Phase]:
    """Train one step, evaluate one batch, and note the phase at each point of the job's code."""
    live, seen = hooked.guest.spool, []

    def note(*_: Any) -> None:
        seen.append(Phase(live.buffer.phase))

    class Rows:
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> torch.Tensor:
            note()
            return torch.ones(1)

    weight = torch.ones(1, requires_grad=True)
    weight.register_hook(torch.utils.hooks.unserializable_hook(note))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.register_step_post_hook(note)
    for batch in DataLoader(Rows()):  # type: ignore[arg-type]
        note()
        (batch * weight).sum().backward()
        note()
        optimizer.step()
        note()
        torch.save(weight, tmp_path / "checkpoint")
        note()
    with torch.no_grad():
        for _ in DataLoader(Rows()):  # type: ignore[arg-type]
            note()
    note()
    return seen


def test_phases_follow_the_training(hooked: Installation, tmp_path: Path) -> None:
    assert phases_of(hooked, tmp_path) == [
        Phase.WAIT,
        *[Phase.COMPUTE] * 6,
        Phase.EVAL_WAIT,
        Phase.EVAL,
        Phase.OUTSIDE,
    ]


def test_the_thread_that_runs_backward_is_the_trainer_not_its_prefetcher(
    hooked: Installation, tmp_path: Path
) -> None:
    prefetcher = threading.Thread(target=list, args=(DataLoader([1, 2, 3]),))  # type: ignore[arg-type]
    prefetcher.start()
    prefetcher.join()
    assert hooked.guest.trainer == prefetcher.ident
    torch.ones(1, requires_grad=True).sum().backward()
    assert hooked.guest.trainer == threading.get_ident()
    late = threading.Thread(target=torch.ones(1, requires_grad=True).sum().backward)
    late.start()
    late.join()
    assert hooked.guest.trainer == threading.get_ident()
    assert len(read(tmp_path).of(Kind.BACKWARD)) == 2


def test_waits_of_a_new_trainer_count_while_the_one_before_is_still_in_its_own(
    hooked: Installation, tmp_path: Path
) -> None:
    is_inside, may_go_on = threading.Event(), threading.Event()

    class Slow:
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            is_inside.set()
            may_go_on.wait()
            return index

    prefetcher = threading.Thread(target=list, args=(DataLoader(Slow()),))  # type: ignore[arg-type]
    prefetcher.start()
    is_inside.wait()
    torch.ones(1, requires_grad=True).sum().backward()
    list(DataLoader(range(5)))  # type: ignore[arg-type]
    may_go_on.set()
    prefetcher.join()
    mine = [
        record for record in read(tmp_path).of(Kind.WAIT) if record[7] == threading.get_native_id()
    ]
    assert len(mine) == 6


def test_waits_count_after_one_that_was_interrupted(hooked: Installation, tmp_path: Path) -> None:
    class Interrupted:
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> int:
            if index == 10:
                raise KeyboardInterrupt
            return index

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            list(DataLoader(Interrupted()))  # type: ignore[arg-type]
    flags = [record[8] for record in read(tmp_path).of(Kind.WAIT)]
    assert len(flags) == 33
    assert sum(bool(flag & Flag.ERROR) for flag in flags) == 3


def test_a_backward_within_another_belongs_to_it(hooked: Installation, tmp_path: Path) -> None:
    class Checkpointed(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, value: torch.Tensor) -> torch.Tensor:
            return value.clone()

        @staticmethod
        def backward(_: Any, *grads: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                torch.autograd.backward(torch.ones(1, requires_grad=True).sum())
            return grads[0]

    for _ in range(10):  # some of them quick, some thorough
        Checkpointed.apply(torch.ones(1, requires_grad=True)).sum().backward()
    assert len(read(tmp_path).of(Kind.BACKWARD)) == 10


@pytest.mark.usefixtures("hooked")
def test_what_a_handler_raises_during_a_collection_reaches_the_job() -> None:
    def end_it(*_: Any) -> None:
        raise InterruptedError

    # Hypothesis has a callback of its own, in Python, which loses what a handler raises in it.
    callbacks = list(gc.callbacks)
    gc.callbacks[:] = [each for each in callbacks if "hypothesis" not in (each.__module__ or "")]
    # So does a callback of a weak reference: what other tests left is not collected in here.
    gc.collect()
    gc.freeze()
    before = signal.signal(signal.SIGALRM, end_it)
    much = [[number] for number in range(300_000)]

    def collect_again_and_again() -> None:
        while much:
            gc.collect()
            del much[-3000:]

    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(InterruptedError):
            collect_again_and_again()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.unfreeze()
        gc.callbacks[:] = callbacks


@pytest.mark.parametrize("fault", [KeyboardInterrupt, TimeoutError])
@pytest.mark.parametrize("half", ["begin", "end"])
@pytest.mark.parametrize("kind", ["Take", "Backward", "Fetch"])
def test_a_hook_goes_on_after_the_job_has_interrupted_it(
    hooked: Installation, tmp_path: Path, kind: str, half: str, fault: type[BaseException]
) -> None:
    (hook,) = (hook for hook in hooked.hooks if type(hook).__name__ == kind)
    original, calls = getattr(hook, half), iter(range(10**6))

    def interrupted(*args: Any) -> Any:
        found = original(*args) if half == "begin" else None
        if next(calls) == 3:
            eval(compile("raise fault", "/job/train.py", "exec"), {"fault": fault})
        return found if half == "begin" else original(*args)

    setattr(hook, half, interrupted)
    weight = torch.ones(1, requires_grad=True)

    def train() -> bool:
        try:
            for batch in DataLoader([1.0, 2.0]):  # type: ignore[arg-type]
                (weight * batch).sum().backward()
        except fault:
            return False
        return True

    assert sum(train() for _ in range(50)) == 49
    left = read(tmp_path)
    assert len(left.of(Kind.WAIT)) >= 145
    assert len(left.of(Kind.BACKWARD)) >= 97
    assert len(left.of(Kind.FETCH)) >= 97


def test_two_optimizers_have_numbers_of_their_own(hooked: Installation, tmp_path: Path) -> None:
    weight = torch.ones(1, requires_grad=True)
    first, second = (torch.optim.SGD([weight], lr=0.1) for _ in range(2))
    weight.sum().backward()
    for optimizer in (first, second, first):
        optimizer.step()
    left = read(tmp_path)
    assert [record[2] for record in left.of(Kind.STEP)] == [1, 2, 1]
    assert left.steps == 3


def drop_sevens(samples: list[int]) -> torch.Tensor:
    return torch.tensor([each for each in samples if each % 7])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate", [None, drop_sevens])
def test_the_size_of_every_batch_is_right_also_where_steps_are_too_quick_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, collate: Any
) -> None:
    monkeypatch.setattr(spooling, "UNHELD", 0)
    installation = Installation(Spool(f"{tmp_path}/spool"))
    installation.add_all(act_on_loaded)
    numbers: Any = range(403)
    loader = DataLoader(numbers, 4, num_workers=workers, collate_fn=collate)
    try:
        taken = [len(batch) for _ in range(2) for batch in loader]
    finally:
        installation.uninstall()
    left = next(left for left in read_spools(tmp_path) if left.of(Kind.SOURCE))
    batches_taken = [each for each in left.of(Kind.WAIT) if not each[8] & Flag.END]
    assert [each[3] for each in batches_taken] == taken


def test_loaders_and_optimizers_are_not_kept_alive(hooked: Installation) -> None:
    class Rows(list[int]):
        pass

    gone: list[str] = []
    rows = Rows([1, 2])
    loader = DataLoader(rows)  # type: ignore[arg-type]
    weakref.finalize(loader, gone.append, "loader")
    list(loader)
    del loader
    gc.collect()
    assert gone == ["loader"]


def test_the_graph_is_counted_soon_and_then_rarely(hooked: Installation, tmp_path: Path) -> None:
    weight = torch.ones(1, requires_grad=True)
    for _ in range(100):
        (weight * 2 + 1).sum().backward()
    nodes = [record[2] for record in read(tmp_path).of(Kind.BACKWARD)]
    assert [count for count in nodes if count] == [4, 4]
    assert nodes.index(4) < 10


def test_shared_nodes_are_counted_once_and_large_graphs_are_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight = torch.ones(1, requires_grad=True)
    twice = weight * 2
    assert training.count_nodes((twice + twice).sum()) == 4
    assert training.count_nodes([twice, twice.sum()]) == 3
    assert training.count_nodes(torch.ones(1)) == 0
    monkeypatch.setattr(training, "NODES", 10)
    value = weight
    for _ in range(100):
        value = value + 1
    assert training.count_nodes(value) == 10


def test_long_collections_are_recorded_and_short_ones_are_not(
    hooked: Installation, tmp_path: Path
) -> None:
    gc.collect(0)
    rings: list[Any] = []
    for _ in range(200_000):
        ring: list[Any] = []
        ring.append(ring)
        rings.append(ring)
    del rings, ring
    gc.collect()
    hooked.guest.spool.write_buffered()
    records = read(tmp_path).of(Kind.GC)
    assert all(record[1] >= 1_000_000 for record in records)
    assert max(record[3] for record in records) >= 100_000


class Pinnable:
    def pin_memory(self) -> torch.Tensor:
        return torch.zeros(10)


def test_a_whole_batch_is_one_pinning(hooked: Installation, tmp_path: Path) -> None:
    pinning.pin_memory([Pinnable(), {"a": Pinnable()}])
    (record,) = read(tmp_path).of(Kind.PIN)
    assert record[2] == 2 * 40


def test_copies_to_another_device_are_recorded(installation: Installation, tmp_path: Path) -> None:
    installation.add("transfer", "install_copies")
    data = torch.zeros(4)
    data.to("meta", non_blocking=True)
    data.to(torch.float64)
    data.to("cpu")
    torch.empty(4, device="meta").copy_(data)
    torch.empty(4).copy_(data)
    torch.nn.Linear(1, 1).to("meta")
    records = read(tmp_path).of(Kind.COPY)
    assert [record[2] for record in records] == [16, 16, 4, 4]
    assert [record[8] for record in records] == [Flag.NON_BLOCKING, 0, 0, 0]


def test_a_copy_says_whether_it_waits_however_it_was_told(
    installation: Installation, tmp_path: Path
) -> None:
    installation.add("transfer", "install_copies")
    data = torch.zeros(4)
    data.to("meta", torch.float32, True)
    data.to(torch.empty(1, device="meta"), True)
    torch.empty(4, device="meta").copy_(data, True)
    data.to("meta", None, False)
    records = read(tmp_path).of(Kind.COPY)
    assert [record[8] for record in records] == [*[Flag.NON_BLOCKING] * 3, 0]


class FarTensor:
    """What a tensor on a device answers, where there is none."""

    is_cpu = False

    def get_device(self) -> int:
        return 2


def test_copying_to_the_host_waits_for_the_device(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.add("transfer", "install_copies")
    monkeypatch.setattr(transfer, "_PLAIN_TENSORS", (torch.Tensor, FarTensor))
    hook = transfer.Copy(installation.guest, "to")
    bring = hook.wrap(lambda source, *args, **kwargs: torch.zeros(1))
    bring(FarTensor(), "cpu")
    bring(FarTensor(), device=torch.device("cpu"))
    bring(FarTensor(), "cpu", non_blocking=True)
    syncs = read(tmp_path).of(Kind.SYNC)
    assert [(record[2], record[8]) for record in syncs] == [(2, Flag.IMPLICIT)] * 2


def test_copies_run_no_function_mode_of_the_job(installation: Installation) -> None:
    heard: list[str] = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            heard.append(func.__name__)
            return func(*args, **(kwargs or {}))

    data = torch.zeros(4)
    for function in ("install_copies", "install_reads"):
        installation.add("transfer", function)
    with Mode():
        data.to("meta")
        data.cpu()
    assert heard == ["to", "cpu"]


def test_the_copy_hook_passes_for_the_method_it_watches(installation: Installation) -> None:
    """As tables of tensor subclasses need it: torchvision's `func in {torch.Tensor.to}`."""
    original = torch.Tensor.to
    installation.add("transfer", "install_copies")
    heard = []

    class Picky(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            heard.append(func in {torch.Tensor.to: 1} and func == torch.Tensor.to)
            return super().__torch_function__(func, types, args, kwargs or {})

    assert isinstance(torch.zeros(1).as_subclass(Picky).to(torch.float64), Picky)
    assert heard == [True]
    assert pickle.loads(pickle.dumps(torch.Tensor.to)) is not None
    assert torch.Tensor.to.__name__ == original.__name__
    assert isinstance(torch.Tensor.to, type(original))


def test_a_torch_without_accelerator_gets_no_copy_hooks(hooked: Installation) -> None:
    if torch.version.cuda or torch.version.hip:
        pytest.skip("this torch has an accelerator build")
    assert "to" not in vars(torch.Tensor)


def test_reading_a_value_from_a_device_is_a_synchronisation(
    installation: Installation, tmp_path: Path
) -> None:
    installation.add("transfer", "install_reads")
    assert torch.ones(1).item() == 1
    assert torch.ones(2).cpu().tolist() == [1, 1]
    with pytest.raises(NotImplementedError):
        torch.ones(1, device="meta").cpu()
    (record,) = read(tmp_path).of(Kind.SYNC)
    assert record[8] == Flag.IMPLICIT | Flag.ERROR


@pytest.mark.parametrize(
    ("batch", "batch_size", "expected"),
    [
        (torch.zeros(8, 3), 8, (8, 96)),
        ([torch.zeros(8, 3), torch.zeros(8)], 8, (8, 128)),
        ({"a": torch.zeros(5), "b": torch.zeros(5)}, 8, (5, 40)),
        ([torch.zeros(3, 2, 2)] * 4, 4, (4, 192)),
        (([torch.zeros(3, 2)] * 4, ["x"] * 4), 4, (4, 100)),
        (torch.tensor(1.0), None, (1, 4)),
        (["ab", "cd"], 2, (2, 4)),
        ([torch.zeros(4, 2).to_sparse(), torch.zeros(4)], 4, (4, -1)),
        (object(), 4, (-1, -1)),
        ([object()] * 4, 4, (4, -1)),
        ([], None, (-1, -1)),
        ([torch.zeros(1)] * 2000, None, (1, -1)),
    ],
)
def test_batches_are_measured(
    batch: Any, batch_size: int | None, expected: tuple[int, int]
) -> None:
    assert batches.measure(batch, batch_size) == expected


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype stage")
def test_nested_tensors_are_of_unknown_size() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    assert batches.measure([nested, torch.zeros(2)], 2) == (2, -1)


def test_measuring_runs_no_function_mode_of_the_job() -> None:
    heard = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            heard.append(func)
            return func(*args, **(kwargs or {}))

    data = torch.zeros(3)
    with Mode():
        assert batches.measure([data], 3) == (3, 12)
    assert heard == []


def test_the_thread_clock_counts_the_reads_of_the_job_and_not_its_own(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(100_000))
    clock = ThreadClockReader(is_kept=True)
    start = clock.start()
    used = clock.stop(start, 10**9)
    assert (used.rchar_bytes, used.read_calls) == (0, 0)
    start = clock.start()
    fd = os.open(file, os.O_RDONLY)
    assert len(os.read(fd, 100_000)) == 100_000
    os.close(fd)
    used = clock.stop(start, 10**9)
    assert (used.rchar_bytes, used.read_calls) == (100_000, 1)


def test_what_the_kernel_refuses_is_unknown_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SCHEDSTAT", "_IO"):
        monkeypatch.setattr(threadclock, name, "/proc/self/missing")
    clock = ThreadClockReader(is_kept=True)
    used = clock.stop(clock.start(), 10**9)
    assert (used.queued_ns, used.rchar_bytes, used.disk_bytes, used.read_calls) == (-1,) * 4


def test_a_thread_clock_does_not_close_a_descriptor_that_is_no_longer_its_own() -> None:
    before = {int(file.name) for file in Path("/proc/self/fd").iterdir()}
    clock = ThreadClockReader(is_kept=True)
    clock.start()
    ours = {int(file.name) for file in Path("/proc/self/fd").iterdir()} - before
    taken = os.open("/dev/null", os.O_RDONLY)
    for fd in ours - {taken}:
        os.dup2(taken, fd)
    del clock
    gc.collect()
    for fd in ours - {taken}:
        os.close(fd)
    os.close(taken)


class Lazy(DataLoader[Any]):
    """Gives out a generator, and builds the iterator when that is asked for its first batch."""

    def _get_iterator(self) -> Any:
        yield from super()._get_iterator()


class Eager(DataLoader[Any]):
    def _get_iterator(self) -> Any:
        inner = super()._get_iterator()
        return (batch for batch in inner)


@pytest.mark.usefixtures("hooked")
@pytest.mark.parametrize("kind", [Lazy, Eager])
def test_a_loader_that_gives_out_a_generator_is_one_loader_with_its_settings(
    tmp_path: Path, kind: type[DataLoader[Any]]
) -> None:
    loader = kind(range(3))  # type: ignore[arg-type]
    for _ in range(2):
        assert len(list(loader)) == 3
    list(DataLoader(range(2)))  # type: ignore[arg-type]
    left = read(tmp_path)
    assert (left.faults, left.blindspots()) == (0, [])
    assert [settings["batch_size"] for settings in left.settings()] == [1, 1]
    assert [record[2] for record in left.of(Kind.SOURCE_START)] == [1, 1, 2]
    assert [record[2] for record in left.of(Kind.WAIT)] == [1] * 8 + [2] * 3


@pytest.mark.parametrize("is_left_out", [False, True])
def test_without_the_compiled_part_all_but_collections_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_left_out: bool
) -> None:
    if is_left_out:
        monkeypatch.setattr(spooling, "RecordBuffer", PLAIN[0])
        monkeypatch.setattr(hooking, "QuickCalls", PLAIN[1])
        monkeypatch.setattr(hooking, "Quick", PLAIN[2])
    installation, before = Installation(Spool(f"{tmp_path}/spool")), list(gc.callbacks)
    installation.add_all(act_on_loaded)
    assert (gc.callbacks == before) == is_left_out
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(torch.randn(59, 1), batch_size=2):  # type: ignore[arg-type]
        model(batch).sum().backward()
        optimizer.step()
    installation.uninstall()
    left = read(tmp_path)
    told = [
        (blind["what"], "without its compiled part" in blind["why"]) for blind in left.blindspots()
    ]
    assert told == ([("garbage collections", True)] if is_left_out else [])
    assert [record[3] for record in left.of(Kind.WAIT)] == [2] * 29 + [1, 0]
    counts = {kind: len(left.of(kind)) for kind in (Kind.BACKWARD, Kind.STEP, Kind.FETCH)}
    assert counts == {Kind.BACKWARD: 30, Kind.STEP: 30, Kind.FETCH: 30}
    assert [record[2] > 0 for record in left.of(Kind.BACKWARD)].count(True) == 1
