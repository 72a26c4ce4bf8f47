"""The guard around the hooks: it tells our faults from the job's, at whatever moment they come."""

import ctypes
import dis
import functools
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed import distributed_c10d as c10d
from torch.utils.data import DataLoader
from torch.utils.data._utils import fetch, signal_handling

from fuelline.record import hooks
from fuelline.record import spool as spooling
from fuelline.record.buffer import is_compiled
from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import FAULTS_UNTIL_OFF
from fuelline.record.hooks.torch import device_clock, loader, pauses
from fuelline.record.hooks.torch.install import Installation
from fuelline.record.hooks.torch.loader import NOTE, Build, Take
from fuelline.record.hooks.torch.training import Backward, OptimizerStep
from fuelline.record.spool import Spool
from fuelline.schema.run.recording import STEP_HOOK
from fuelline.schema.wire import Collective, Kind
from tests.integration.harness import Left, read_spools

HOOKS = str(Path(hooks.__file__).parent)


def act_on_loaded(name: str, action: Callable[[], None]) -> None:
    if name in sys.modules:
        action()


@pytest.fixture
def hooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    monkeypatch.setattr(spooling, "HOLD_NS", 0)
    installation = Installation(Spool(f"{tmp_path}/spool"))
    installation.add_all(act_on_loaded)
    yield installation
    installation.uninstall()


def read(tmp_path: Path) -> Left:
    (left,) = read_spools(tmp_path)
    return left


def train(batches: int = 8) -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(torch.randn(batches, 1)):
        model(batch).sum().backward()
        optimizer.step()


def test_what_fails_in_torch_when_a_hook_calls_it_is_a_fault_of_ours(
    hooked: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked.add("device_clock", "install")
    monkeypatch.setattr(device_clock, "find_device", lambda _: torch.device("cuda", 0))
    train()  # a torch without CUDA has no streams
    left = read(tmp_path)
    assert left.faults == FAULTS_UNTIL_OFF
    assert [blind["what"] for blind in left.blindspots()] == ["hook device clock"]


@pytest.mark.skipif(not is_compiled(), reason="built without a compiler")
def test_what_fails_in_the_compiled_part_is_a_fault_of_ours(
    hooked: Installation, tmp_path: Path
) -> None:
    train()
    for state in hooked.guest.hook_states:
        state.quick_calls = 100
    loader = DataLoader(torch.randn(2, 1))
    batches = iter(loader)
    vars(batches)[NOTE] = 1, 2**64, 0  # a batch size that no record has room for
    assert len(list(batches)) == 2
    (blind,) = read(tmp_path).blindspots()
    assert blind["what"] == "hook loader wait"
    assert blind["why"] == "OverflowError at the compiled part"
    assert blind["code"] == STEP_HOOK


def test_the_blindspot_of_a_hook_that_every_step_goes_through_says_so() -> None:
    assert {each.code for each in (Take, Backward, OptimizerStep)} == {STEP_HOOK}
    assert Build.code == ""


def test_a_fault_that_cannot_be_told_is_kept_from_the_job(
    hooked: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise MemoryError

    fail.__code__ = fail.__code__.replace(co_filename=spooling.__file__)
    monkeypatch.setattr(pauses, "_path", fail)
    monkeypatch.setattr(hooked.guest, "report_blindspot", fail)
    stream = io.BytesIO()
    torch.save(1, stream)
    assert stream.tell()


NO_DESCRIPTOR = """
import io, os, sys, torch
from fuelline.record.hooks.torch.install import install
torch.save(torch.zeros(1), io.BytesIO())  # loads what it needs
install(sys.argv[1], lambda name, action: None)
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
except OSError:
    pass
torch.save(torch.zeros(1), io.BytesIO())
"""


@pytest.mark.bare
@pytest.mark.integration
def test_a_job_with_all_its_descriptors_in_use_saves_as_ever(tmp_path: Path) -> None:
    command = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", sys.executable, "-c", NO_DESCRIPTOR]
    ended = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


class TimeLimitError(Exception):
    """What a library sends a thread by PyThreadState_SetAsyncExc."""


def test_what_another_thread_sends_is_heard_in_a_hook(
    hooked: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object) -> tuple[int, int]:
        me, sent = ctypes.c_ulong(threading.get_ident()), ctypes.py_object(TimeLimitError)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(me, sent)
        return 1, 1

    measure.__code__ = measure.__code__.replace(co_filename=spooling.__file__)
    monkeypatch.setattr(loader, "measure", measure)
    with pytest.raises(TimeLimitError):
        train()
    assert read(tmp_path).faults == 0
    assert marks_of(hooked.guest) == []


@pytest.mark.usefixtures("hooked")
def test_a_fetcher_may_be_called_by_name() -> None:
    class Named(fetch._MapDatasetFetcher):
        def fetch(self, indices: Any) -> Any:
            return super().fetch(possibly_batched_index=indices)

    fetcher = Named([1, 2, 3], True, list, False)
    assert [fetcher.fetch([0, 2]) for _ in range(3)] == [[1, 3]] * 3


@pytest.mark.usefixtures("hooked")
def test_a_handler_of_torch_that_tells_of_a_dead_worker_is_heard_in_a_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}
    words = "def handler(*_):\n    raise RuntimeError('a worker was killed')"
    exec(compile(words, signal_handling.__file__, "exec"), told)
    before = signal.signal(signal.SIGUSR1, told["handler"])

    def measure(*_: object) -> tuple[int, int]:
        os.kill(os.getpid(), signal.SIGUSR1)
        return 1, 1

    measure.__code__ = measure.__code__.replace(co_filename=spooling.__file__)
    monkeypatch.setattr(loader, "measure", measure)
    try:
        with pytest.raises(RuntimeError, match="a worker was killed"):
            train()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert read(tmp_path).faults == 0


@pytest.fixture
def lone_group(tmp_path: Path) -> Any:
    """A group that a library has made for itself, in a job that has none."""
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    return c10d.ProcessGroupGloo(distributed.PrefixStore("x", store), 0, 1)


@pytest.mark.usefixtures("hooked")
def test_collectives_of_a_group_without_a_job_s_are_recorded(
    tmp_path: Path, lone_group: Any
) -> None:
    for _ in range(2):
        distributed.all_reduce(torch.ones(3), group=lone_group)
    left = read(tmp_path)
    assert left.faults == 0
    ((_, _, rank, ranks, _, backend, *_),) = left.of(Kind.RANK)
    assert (rank, ranks, left.texts[backend]) == (0, 1, b"gloo")
    calls = [record[2:7] for record in left.of(Kind.COLLECTIVE)]
    assert calls == [(int(Collective.ALL_REDUCE), 12, 0, -1, 1)] * 2


@pytest.mark.usefixtures("hooked")
def test_the_rank_in_the_job_is_told_once_there_is_one(tmp_path: Path, lone_group: Any) -> None:
    distributed.all_reduce(torch.ones(3), group=lone_group)
    store = distributed.FileStore(str(tmp_path / "all"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        for group in (None, lone_group, None):
            distributed.all_reduce(torch.ones(3), group=group)
    finally:
        distributed.destroy_process_group()
    assert len(read(tmp_path).of(Kind.RANK)) == 2


@functools.cache
def find_moments(code: CodeType) -> set[int]:
    """Where Python runs signal handlers: on entering a function, after a call, and in a loop.

    An instruction that does nothing belongs to no `try`, and no handler runs there.
    """
    found, before = set(), "RESUME"
    for instruction in dis.get_instructions(code):
        if before.startswith(("RESUME", "CALL", "JUMP")) and instruction.opname != "NOP":
            found.add(instruction.offset)
        before = instruction.opname
    return found


class Interrupter:
    """Raises at the given of these moments in our own code, as a signal handler may."""

    def __init__(self, number: int) -> None:
        self.left = number

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(HOOKS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and frame.f_lasti in find_moments(frame.f_code):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return self.trace


def is_interrupted(number: int, job: Callable[[], None]) -> bool:
    before = sys.gettrace()
    sys.settrace(Interrupter(number).trace)
    try:
        job()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def marks_of(guest: Guest) -> list[object]:
    """Whatever says that a thread is in the midst of something."""
    marks: list[object] = [*guest.waiting, *guest.fetching, *guest.backward]
    return marks + [state for state in guest.hook_states if state.is_inside]


@pytest.mark.parametrize("path", ["thorough", "quick", "without a record"])
def test_hooks_record_again_wherever_they_were_interrupted(
    hooked: Installation, tmp_path: Path, path: str
) -> None:
    guest, number, is_reached = hooked.guest, 0, True
    train()

    def job() -> None:
        for state in guest.hook_states:
            state.quick_calls = 0 if path == "thorough" else 100
        guest.spool.buffer.write_at = 2**62 if path == "without a record" else 0
        train(1)

    while is_reached:
        is_reached = is_interrupted(number, job)
        assert marks_of(guest) == [], f"moment {number}"
        number += 1
    assert number > 100
    guest.spool.write_buffered()
    before = len(read(tmp_path).of(Kind.WAIT))
    train()
    assert len(read(tmp_path).of(Kind.WAIT)) == before + 9
    assert read(tmp_path).faults == 0


@pytest.mark.parametrize("index", range(28, 40))  # some of them quick, some thorough
def test_a_call_in_which_the_process_forks_is_recorded_by_the_parent_only(
    hooked: Installation, tmp_path: Path, index: int
) -> None:
    class Forking:
        child = -1

        def __len__(self) -> int:
            return 40

        def __getitem__(self, at: int) -> int:
            if at == index:
                self.child = os.fork()
            return at

    rows = Forking()
    list(DataLoader(rows))  # type: ignore[arg-type]
    if not rows.child:
        hooked.guest.spool.write_buffered()
        os._exit(0)
    os.waitpid(rows.child, 0)
    (child,) = (left for left in read_spools(tmp_path) if left.pid == rows.child)
    assert {record[7] for record in child.records} == {child.pid}
    assert len(child.of(Kind.WAIT)) == 40 - index
    assert {len(left.of(Kind.WAIT)) for left in read_spools(tmp_path)} == {41, 40 - index}
