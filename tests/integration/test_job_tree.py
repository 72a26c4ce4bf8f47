"""Who belongs to the job, and how much CPU it used, children that have ended included."""

import resource
import subprocess
import sys
import time
from collections.abc import Callable

from fuelline.record.samplers.procfs import NS_PER_TICK
from fuelline.record.samplers.tree import Tree

DEADLINE_S = 30.0

FAMILY = """
import os, sys

def burn(seconds):
    import time
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def start_child():
    child = os.fork()
    if not child:
        burn(0.4)
        os.read(0, 1)
        os._exit(0)
    return child

children = [start_child(), start_child()]
os.read(0, 1)
for child in children:
    os.waitpid(child, 0)
burn(0.2)
print("done", flush=True)
os.read(0, 1)
"""


def watch_until(tree: Tree, is_enough: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_enough() and time.monotonic() < deadline:
        tree.look_for_children()
        tree.refresh()
        time.sleep(0.01)
    assert is_enough()


def test_cpu_of_children_is_counted_once_whether_they_live_or_have_ended() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    job = subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert job.stdin is not None
    assert job.stdout is not None
    tree = Tree(job.pid, 4096)
    watch_until(tree, lambda: len(tree.processes) == 3)
    watch_until(tree, lambda: tree.cpu_ns > 700_000_000)
    job.stdin.write(b"xxx")
    job.stdin.flush()
    watch_until(tree, lambda: len(tree.processes) == 1)
    assert job.stdout.readline() == b"done\n"
    tree.refresh()
    counted_ns = tree.cpu_ns
    job.communicate()
    tree.refresh()
    assert not tree.processes
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_ns = (
        sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
        * 1_000_000_000
    )
    assert abs(spent_ns - counted_ns) < 12 * NS_PER_TICK
    tree.close()


def test_a_child_that_another_thread_started_is_found() -> None:
    code = """
import subprocess, sys, threading, time
def start():
    subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
    time.sleep(99)
threading.Thread(target=start, daemon=True).start()
sys.stdin.read()
"""
    job = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    tree = Tree(job.pid, 4096)
    try:
        watch_until(tree, lambda: len(tree.processes) == 2)
    finally:
        job.communicate()
        tree.close()


THREADS = """
import sys, threading, time
while True:
    thread = threading.Thread(target=time.sleep, args=(0.2,))
    thread.start()
    thread.join()
"""


def test_a_thread_in_the_place_of_one_that_ended_is_met_at_once() -> None:
    """As many threads as before: their number says nothing."""
    job = subprocess.Popen([sys.executable, "-c", THREADS])
    try:
        tree = Tree(job.pid, 4096)
        watch_until(tree, lambda: job.pid in tree.processes)
        process = tree.processes[job.pid]
        watch_until(tree, lambda: len(process.threads) == 2)
        known = set(process.threads)
        deadline = time.monotonic() + DEADLINE_S
        while set(process.threads) == known and time.monotonic() < deadline:
            process.has_other_threads = True
            assert tree.replace_threads()
            time.sleep(0.01)
        assert set(process.threads) != known
        assert not tree.replace_threads()
        tree.close()
    finally:
        job.kill()
        job.wait()
