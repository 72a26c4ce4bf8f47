"""How the observer is ended, whatever it hangs in."""

import signal
import subprocess

from fuelline.record import launch


class Stuck:
    """An observer in a system call of a driver that does not return: no signal reaches it."""

    returncode = None

    def __init__(self) -> None:
        self.signals: list[str] = []

    def poll(self) -> None:
        return None

    def terminate(self) -> None:
        self.signals.append("TERM")

    def kill(self) -> None:
        self.signals.append("KILL")

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None, "the job's end must not wait for ever"
        raise subprocess.TimeoutExpired("observer", timeout)


def test_an_observer_that_hangs_in_a_driver_does_not_keep_the_job_from_ending() -> None:
    stuck = Stuck()
    assert launch._stop(stuck) == -signal.SIGKILL  # type: ignore[arg-type]
    assert stuck.signals == ["TERM", "KILL"]


def test_an_observer_that_ended_by_itself_is_not_asked_to() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert launch._stop(ended) == 0


def test_without_an_observer_there_is_no_code() -> None:
    assert launch._stop(None) is None
