"""What the recording of several ranks and hosts hides is said, and what it rules out."""

import dataclasses

from fuelline.signals import HostView, align_hosts, find_unseen, view_host, why_no_steps
from fuelline.timeline.clocks import Offset
from tests.unit.builders import TRAINER, Lane, make_timeline
from tests.unit.signals.ranks.test_hosts import two_hosts
from tests.unit.timeline.test_collectives import rank_facts


def unseen(*hosts: HostView) -> list[str]:
    """What is hidden, in short; the builders' runs have no end."""
    spots = [spot.what for spot in find_unseen(hosts, hosts[0].trainers[0])]
    assert spots[0] == "how the job ended"
    return spots[1:]


def test_ranks_that_left_no_steps_are_counted() -> None:
    lane = Lane(pid=100).step().step()
    timeline = make_timeline(lane, facts=rank_facts(100, 101, 102))
    assert unseen(view_host(timeline)) == ["2 of 3 ranks"]


def test_a_thread_that_takes_the_batches_for_another_hides_its_waits() -> None:
    trains = Lane().backward(10).optimizer(5).backward(10).optimizer(5)
    reads = Lane(tid=101).batch(5).batch(5)
    (spot,) = unseen(view_host(make_timeline(trains, reads)))
    assert spot == "how long the training thread waits for input, by the clock"


def test_clocks_that_agree_to_within_something_say_so_and_those_that_cannot_be_compared() -> None:
    first, second = align_hosts(two_hosts())
    assert unseen(first, second) == ["differences under 11.0 ms between hosts"]
    lost = dataclasses.replace(second, offset=Offset(0, None))
    assert unseen(first, lost) == ["how the clock of here differs from here's"]


def test_training_processes_that_meet_in_no_collective_are_counted() -> None:
    lanes = [Lane(pid=pid).step().step() for pid in (100, 200, 300)]
    assert unseen(view_host(make_timeline(*lanes))) == ["2 further training processes"]


def test_steps_that_nothing_with_a_clock_feeds_are_told_by_samples() -> None:
    host = view_host(make_timeline(Lane().backward(10).optimizer(5).backward(10).optimizer(5)))
    assert unseen(host) == ["the clock of where the training data comes from"]


def test_without_steps_it_is_said_how_far_the_job_came() -> None:
    started = view_host(make_timeline(Lane().step(), facts=rank_facts(TRAINER)))
    assert "fewer than two steps" in why_no_steps([started], started.trainers[0])
    assert "no batch was taken" in why_no_steps([started], None)
    nothing = dataclasses.replace(started, processes=())
    assert "no process of the job loaded PyTorch" in why_no_steps([nothing], None)
