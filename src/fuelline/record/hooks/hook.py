"""The one way in which anything of the framework is wrapped, and the one guard around our own code.

A hook says what to do before (`begin`) and after (`end`) a call. An exception of the hook is
counted, told once as a blindspot, and after a few the hook switches itself off; the call goes on.
Exceptions of the job pass through untouched, also one that a signal handler of the job raises while
our code happens to run. A hook shows as one frame in their traceback, a quick one as two at most.
"""

import functools
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar

from fuelline.record.buffer import Quick, QuickCalls, TakeSettings
from fuelline.record.hooks.guest import Framework, Guest

__all__ = ["Hook", "QuickHook"]

LONGEST_RUN = 256
"""Quick calls between two thorough ones, at most. Every 257th is thorough then: a count of workers
that divides this would always show the same worker, and 257 is prime."""

RUN_GROWTH = 8
"""A run is longer by one call than the one before, so that it is the longest after 33,000 calls;
while steps are quick, by one in as many calls more, and it is the longest after 2,500."""

FAULTS_UNTIL_OFF = 3
"""A hook that failed thrice meets something it was not written for; more tries tell nothing."""

_PACKAGE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - no pathlib here
_OUR_ROOT = os.path.dirname(os.path.dirname(_PACKAGE)) + os.sep  # noqa: PTH120 - as above
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep  # noqa: PTH100, PTH120 - as above

_LIBRARIES = frozenset(("fuelline", "numpy"))
"""Whose exceptions may come up in our code, with those of Python itself and of the framework."""


class Hook:
    """One point of the framework that is watched."""

    name: ClassVar[str]
    forbids: ClassVar[str]
    """What cannot be concluded when this hook is off; part of its blindspot."""
    code: ClassVar[str] = ""
    """Likewise: `step-hook` if every step goes through it."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self._framework = guest.framework
        self.is_on = True
        self._faults = 0

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start of a call; None means that this call is not of interest."""
        raise NotImplementedError

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record the call that `begin` gave the ticket for."""
        raise NotImplementedError

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The callable to put in the original's place."""
        is_tracing = self._framework.is_tracing

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            # A compiler that traces through us must see the original call and nothing else.
            if is_tracing() or not self.is_on:
                return original(*args, **kwargs)
            ticket: Any = self  # anything but None: we may be inside until `begin` has answered
            try:
                try:
                    ticket = self.begin(args, kwargs)
                except BaseException as fault:  # noqa: BLE001 - the guard
                    self.answer_for(fault)
                    ticket = None
                if ticket is not None:
                    try:
                        result = original(*args, **kwargs)
                    except BaseException as error:
                        self.close(ticket, None, error)
                        ticket = None
                        raise
                    self.close(ticket, result, None)
                    return result
            except BaseException:
                if ticket is not None:
                    self.withdraw()  # interrupted, perhaps on the way into the guard
                raise
            return original(*args, **kwargs)

        return watched

    def close(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """`end`, guarded."""
        try:
            self.end(ticket, result, error)
        except BaseException as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)

    def withdraw(self) -> None:
        """Forget that this thread is in a call, where a hook notes that: we were interrupted."""

    def switch_off(self) -> None:
        """Record nothing more, whoever may still hold on to the wrapper."""
        self.is_on = False

    def answer_for(self, fault: BaseException) -> None:
        """Count a fault of ours; raise it again if it is the job's."""
        self.withdraw()
        framework = self._framework
        place = _find_place(fault, framework)
        if place is None:
            raise fault  # not ours: raised by code of the job that interrupted us, as by a Ctrl-C
        self._faults += 1
        if self._faults >= FAULTS_UNTIL_OFF:
            self.switch_off()
        try:
            self.guest.spool.count_fault()
            why = f"{type(fault).__name__} at {place}"
            self.guest.report_blindspot(f"hook {self.name}", why, self.forbids, self.code)
        except BaseException as second:
            # What failed us once may do so again (no memory, no descriptor): then none is told.
            if _find_place(second, framework) is None:
                raise


class QuickHook(Hook):
    """A hook on the way of every step, with a quick way for the usual call of the trainer thread.

    The quick way (`buffer.Quick`) notes when and how long, and nothing else. All other calls are
    thorough ones: they go through `begin` and `end`, read the CPU clock, and say how many quick
    calls may follow.
    """

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self.state = QuickCalls(guest.spool.buffer)
        self.calls = 0
        """All calls until the next thorough one."""
        self._run = 0
        guest.hook_states.append(self.state)

    def quicken(
        self,
        original: Callable[..., Any],
        thorough: Callable[..., Any],
        tail: int = 0,
        settings: TakeSettings | None = None,
    ) -> Any:
        """The quick way of a function, which goes the thorough one where it must; None: no such."""
        if Quick is None:
            return None
        write = self.guest.spool.write_buffered
        return Quick(self, self.state, original, thorough, write, tail, settings)

    def leave(self, ident: int) -> None:
        """Note that a thread is in no call any more."""
        if ident == self.guest.trainer:
            self.state.is_inside = False

    def start_run(self) -> None:
        """Let some quick calls follow, the more the longer the training has run."""
        more = 1 + (self._run // RUN_GROWTH if self.guest.spool.buffer.write_at else 0)
        self._run = min(self._run + more, LONGEST_RUN)
        self.state.quick_calls = self._run
        self.calls += 1 if Quick is None else 1 + self._run

    def switch_off(self) -> None:
        """Stop, the quick path included."""
        super().switch_off()
        self.state.quick_calls = 0


def _find_place(fault: BaseException, framework: Framework) -> str | None:
    """Where we failed; None if the fault is the job's, who is to hear of it then."""
    return None if _is_foreign(fault, framework) else _place_of(fault.__traceback__, framework)


def _is_foreign(fault: BaseException, framework: Framework) -> bool:
    """Whether it is of a kind that nothing here raises: then another thread of the job's sent it.

    Such an exception comes up in whatever runs, without a frame of its sender (time limits do so).
    """
    library = type(fault).__module__.partition(".")[0]
    is_known = library in {*_LIBRARIES, framework.package} or library in sys.stdlib_module_names
    return not isinstance(fault, Exception) or not is_known


def _place_of(traceback: TracebackType | None, framework: Framework) -> str | None:
    """The last of our frames; None if a frame is the job's.

    The traceback begins with us, so what fails in the framework or the standard library was called
    by us. A signal handler is called from whatever frame is interrupted, and so stands after ours,
    too. Our compiled part has no frames.
    """
    place = None if traceback is not None else "the compiled part"
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename.startswith(_OUR_ROOT):
            place = f"{code.co_name}:{traceback.tb_lineno}"
        elif not _is_called_by_us(code.co_filename, framework):
            return None
        traceback = traceback.tb_next
    return place


def _is_called_by_us(file: str, framework: Framework) -> bool:
    """Whether code that is not ours is none of the job's either."""
    if file.startswith(framework.folder):
        return not file.startswith(framework.handlers)
    is_stdlib = file.startswith(_STDLIB) and "-packages" not in file
    return is_stdlib or file.startswith("<frozen ")
