"""The governor: grows while the training waits and there is room, takes back what did not help."""

from dataclasses import replace

import pytest

from fuelline.fix.elastic.governor import CLAIMS, FIRST_PAUSE, LOOKS, Governor
from fuelline.fix.elastic.observation import Observation, SettingChange, TurnLimits

LIMITS = TurnLimits(base=2, most=8, cores=8.0, base_window=4, most_window=64)


def look(rate: float = 50.0, *, starved: float = 0.6, busy: float = 1.0, active: int = 2,
         cpu: float = 0.2, queued: float | None = 0.0, room: int = 99) -> Observation:  # fmt: skip
    """Half a second of training."""
    seconds = 0.5
    busy_s = busy * seconds * active
    return Observation(
        seconds=seconds, batches=round(rate * seconds), wait_s=starved * seconds, busy_s=busy_s,
        cpu_s=cpu * busy_s, fetches=round(rate * seconds), queued=queued, room=room,
    )  # fmt: skip


def hear_all(governor: Governor, *looks: Observation) -> SettingChange | None:
    changes = [governor.hear(each) for each in looks]
    assert changes[:-1] == [None] * (len(looks) - 1)
    return changes[-1]


def grown(rate_after: float) -> tuple[Governor, SettingChange | None]:
    governor = Governor(LIMITS, 2, 4)
    change = hear_all(governor, *[look()] * LOOKS)
    assert change is not None
    return governor, hear_all(governor, *[look(rate_after, active=change.active)] * LOOKS)


def test_a_fed_training_is_left_alone() -> None:
    governor = Governor(LIMITS, 2, 4)
    assert hear_all(governor, *[look(starved=0.01)] * 40) is None
    assert (governor.active, governor.window) == (2, 4)


def test_a_starved_training_gets_what_its_step_needs() -> None:
    governor = Governor(LIMITS, 2, 4)
    change = hear_all(governor, *[look(starved=0.6)] * LOOKS)
    # A fetch takes 40 ms, a step of its own 8 ms: 5 workers, and 15 % more for what varies.
    assert change is not None
    assert (change.active, change.window) == (6, 12)


def test_a_change_that_helps_is_kept() -> None:
    governor, change = grown(90.0)
    assert change is None
    assert governor.active == 6
    assert [trial.verdict for trial in governor.ended] == ["kept"]


def test_a_change_that_does_not_help_is_confirmed_and_taken_back() -> None:
    governor, change = grown(50.0)
    assert change is None
    change = hear_all(governor, *[look(50.0, active=6)] * LOOKS)
    assert change is not None
    assert (change.active, change.window, governor.active) == (2, 4, 2)
    assert [trial.verdict for trial in governor.ended] == ["rolled back"]


def test_a_change_that_harms_is_taken_back_at_once() -> None:
    governor, change = grown(30.0)
    assert change is not None
    assert governor.active == change.active == 2


def test_what_did_not_help_is_not_tried_again_soon_nor_the_same() -> None:
    governor, _ = grown(30.0)
    assert hear_all(governor, *[look()] * FIRST_PAUSE) is None
    again = governor.hear(look())
    assert again is not None
    assert again.active == 3


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (look(queued=0.5), "no core is free"),
        (look(room=2), "memory has no room"),
    ],
)
def test_without_room_nothing_grows_and_it_is_said_why(seen: Observation, words: str) -> None:
    governor = Governor(LIMITS, 2, 4)
    assert hear_all(governor, *[seen] * 10) is None
    assert words in governor.blocked_by


def test_workers_that_compute_are_bounded_by_cores() -> None:
    limits = TurnLimits(base=1, most=8, cores=2.0, base_window=2, most_window=64)
    change = hear_all(Governor(limits, 1, 2), *[look(starved=0.9, active=1, cpu=1.0)] * LOOKS)
    assert change is not None
    assert change.active == 2


def test_idle_workers_with_a_starved_training_get_a_longer_queue() -> None:
    governor = Governor(LIMITS, 2, 4)
    change = hear_all(governor, *[look(busy=0.5)] * LOOKS)
    assert change is not None
    assert (change.active, change.window) == (2, 8)


def test_a_longer_queue_that_does_not_help_is_followed_by_another_worker_at_once() -> None:
    governor = Governor(LIMITS, 2, 4)
    hear_all(governor, *[look(busy=0.5)] * LOOKS)
    back = hear_all(governor, *[look(busy=0.5)] * 2 * LOOKS)
    assert back is not None
    assert (back.active, back.window, back.is_trial) == (2, 4, False)
    change = hear_all(governor, *[look(busy=0.5)] * LOOKS)
    assert change is not None
    assert (change.active, change.is_trial) == (3, True)


def test_one_worker_grows_to_what_is_needed_in_one_step() -> None:
    limits = TurnLimits(base=1, most=17, cores=2.0, base_window=2, most_window=136)
    change = hear_all(Governor(limits, 1, 2), *[look(starved=0.95, active=1, cpu=0.02)] * LOOKS)
    assert change is not None
    assert change.active == 17  # blocked workers are not bounded by two cores


def test_a_sampler_that_may_not_be_asked_ahead_keeps_its_window() -> None:
    limits = TurnLimits(base=2, most=8, cores=8.0, base_window=4, most_window=4)
    change = hear_all(Governor(limits, 2, 4), *[look()] * LOOKS)
    assert change is not None
    assert (change.active, change.window) == (6, 4)


def test_workers_that_stand_idle_are_parked_down_to_the_jobs_own_number() -> None:
    governor = Governor(LIMITS, 4, 8)
    looks = [look(starved=0.0, busy=0.1, active=4)] * 60
    changes = [change for each in looks if (change := governor.hear(each)) is not None]
    assert [change.active for change in changes] == [3, 2]
    assert not any(change.is_trial for change in changes)


def test_far_more_workers_than_cores_are_thinned_out_as_a_trial() -> None:
    limits = TurnLimits(base=16, most=16, cores=2.0, base_window=32, most_window=32)
    change = hear_all(Governor(limits, 16, 32), *[look(active=16, cpu=0.1, queued=0.8)] * LOOKS)
    assert change is not None
    assert (change.active, change.is_trial) == (2, True)


def test_lost_workers_end_the_trial_and_lower_the_limit() -> None:
    governor, _ = grown(50.0)
    governor.lose(3)
    assert (governor.active, governor.limits.most) == (3, 3)
    assert [trial.verdict for trial in governor.ended] == ["cannot tell"]


def test_a_change_that_never_came_into_force_is_no_trial() -> None:
    governor = Governor(LIMITS, 2, 4)
    hear_all(governor, *[look()] * LOOKS)
    governor.withdraw()
    governor.interrupt()
    assert (governor.active, governor.ended) == (2, [])


def test_a_wait_that_is_seen_to_fall_is_kept_though_the_rate_cannot_tell() -> None:
    """The trainer itself varies by 3 % from look to look, and there are 4 % to gain."""
    governor = Governor(LIMITS, 2, 4)
    shaky = [look(rate, starved=0.04, busy=0.6) for rate in (96, 100, 104)]
    change = hear_all(governor, *shaky)
    assert change is not None
    assert (change.active, change.window) == (2, 8)
    after = [look(rate, starved=0.001, busy=0.6) for rate in (98, 102, 104)]
    assert hear_all(governor, *after, *after) is None
    assert governor.window == 8
    assert [trial.verdict for trial in governor.ended] == ["kept"]


def test_a_wait_that_falls_while_the_job_gets_slower_is_not_kept() -> None:
    """Workers that take the trainer's core away make its own part longer."""
    governor = Governor(LIMITS, 2, 4)
    hear_all(governor, *[look(100, starved=0.04, busy=0.6)] * LOOKS)
    change = hear_all(governor, *[look(90, starved=0.0, busy=0.6)] * LOOKS)
    assert change is not None
    assert [trial.verdict for trial in governor.ended] == ["rolled back"]


def test_more_workers_keep_a_queue_that_was_made_longer() -> None:
    change = hear_all(Governor(LIMITS, 2, 32), *[look()] * LOOKS)
    assert change is not None
    assert (change.active, change.window) == (6, 32)


def test_where_a_longer_queue_is_not_allowed_uneven_fetches_get_a_worker_more() -> None:
    limits = replace(LIMITS, most_window=4)
    change = hear_all(Governor(limits, 2, 4), *[look(starved=0.1, busy=0.6)] * LOOKS)
    assert change is not None
    assert (change.active, change.window) == (3, 4)
    full = Governor(limits, 4, 4)
    assert hear_all(full, *[look(starved=0.1, busy=0.6, active=4)] * LOOKS) is None
    assert "not the limit" in full.blocked_by


def test_workers_beyond_those_that_were_started_are_wanted_for_the_next_epoch() -> None:
    """Eight workers that sleep 98 % of the time, where thirty would keep up."""
    governor = Governor(replace(LIMITS, cores=2.0), 8, 16)
    hear_all(governor, *[look(starved=0.7, active=8, cpu=0.02)] * LOOKS)
    assert governor.wanted > 8
    assert f"{governor.wanted} would keep up" in governor.blocked_by


def test_another_need_ends_the_pause_after_a_change_that_did_not_help() -> None:
    governor, _ = grown(30.0)
    assert hear_all(governor, *[look(starved=0.6)] * LOOKS) is None  # as it was
    change = None
    for _ in range(LOOKS):
        change = change or governor.hear(look(20.0, starved=0.95))
    assert change is not None


def busy_host(active: int = 2, **changes: object) -> Observation:
    """One of several ranks, whose workers compute all the time."""
    return replace(look(cpu=1.0, active=active), **changes)  # type: ignore[arg-type]


def test_cores_that_other_ranks_leave_are_used() -> None:
    few = replace(LIMITS, cores=2.0)
    alone = Governor(few, 2, 4)
    assert hear_all(alone, *[busy_host()] * LOOKS) is None
    assert alone.blocked_by == "no core is free for another worker"
    change = hear_all(Governor(few, 2, 4), *[busy_host(cores=5.0)] * LOOKS)
    assert change is not None
    assert change.active == 5


def test_a_rank_may_have_its_part_although_others_fill_the_cores() -> None:
    crowded = replace(look(cpu=0.6, queued=0.4), cores=4.0)
    change = hear_all(Governor(LIMITS, 2, 4), *[crowded] * LOOKS)
    assert change is not None
    assert change.active == 4
    assert hear_all(Governor(LIMITS, 2, 4), *[replace(crowded, cores=2.0)] * LOOKS) is None


def given(rate_after: float, others_after: float) -> tuple[Governor, SettingChange | None]:
    """Workers were given back; the rates of this rank and of the other before that were 50."""
    governor = Governor(LIMITS, 6, 12)
    claimed = busy_host(6, cores=3.0, is_claimed=True, others=(("7-1", 50.0),))
    change = hear_all(governor, *[claimed] * CLAIMS)
    assert change is not None
    assert (change.active, change.is_trial, governor.active) == (3, False, 3)
    after = replace(look(rate_after, active=3, cpu=1.0), cores=3.0, others=(("7-1", others_after),))
    return governor, hear_all(governor, *[after] * 2 * LOOKS)


def test_added_workers_are_given_back_to_a_rank_that_is_short_of_cores() -> None:
    governor, change = given(rate_after=40.0, others_after=80.0)
    assert change is None
    assert governor.active == 3


def test_workers_are_taken_up_again_if_nobody_gained_by_it() -> None:
    governor, change = given(rate_after=40.0, others_after=40.0)  # they step together
    assert change is not None
    assert (change.active, governor.active) == (6, 6)
    claimed = busy_host(6, cores=3.0, is_claimed=True)
    assert hear_all(governor, *[claimed] * CLAIMS) is None  # and not given again so soon


def test_the_jobs_own_workers_are_never_given_back() -> None:
    governor = Governor(replace(LIMITS, base=4, base_window=8), 4, 8)
    claimed = busy_host(4, cores=1.0, is_claimed=True)
    assert hear_all(governor, *[claimed] * 20) is None
    assert governor.active == 4


def judged(others_after: float) -> tuple[str, int]:
    governor = Governor(LIMITS, 2, 4)
    before = busy_host(cores=8.0, others=(("7-1", 100.0),))
    change = hear_all(governor, *[before] * LOOKS)
    assert change is not None
    after = replace(look(70.0, active=change.active, cpu=1.0), cores=8.0,
                    others=(("7-1", others_after),))  # fmt: skip
    hear_all(governor, *[after] * LOOKS)
    return governor.ended[0].verdict, governor.active


def test_a_gain_that_costs_another_rank_more_is_taken_back() -> None:
    assert judged(others_after=60.0) == ("rolled back", 2)


def test_a_gain_that_costs_others_less_is_kept() -> None:
    assert judged(others_after=80.0) == ("kept", 6)
    assert judged(others_after=140.0) == ("kept", 6)  # ranks that step together
    assert judged(others_after=0.0) == ("kept", 6)  # it has ended
