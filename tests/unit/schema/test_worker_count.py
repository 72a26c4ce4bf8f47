"""How many workers are needed: one law for rules, model and --fix, whatever the job."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuelline.diagnose.rule import count_workers
from fuelline.fix.elastic.governor import LOOKS, Governor
from fuelline.fix.elastic.observation import Observation, TurnLimits
from fuelline.schema.readings import Missing
from fuelline.schema.worker_count import MOST_WORKERS, count_affordable, count_needed
from fuelline.whatif import fit
from fuelline.whatif.recommending import recommend
from tests.rules.cases import build_facts
from tests.unit.whatif.jobs import make_facts, plain


@pytest.mark.parametrize(
    ("fetch_s", "own_s", "needed"),
    [(0.040, 0.008, 6), (0.001, 0.100, 1), (9.0, 0.001, MOST_WORKERS), (0.5, 0.0, MOST_WORKERS)],
)
def test_as_many_are_needed_as_fetches_fit_into_a_step(
    fetch_s: float, own_s: float, needed: int
) -> None:
    assert count_needed(fetch_s, own_s) == needed


@pytest.mark.parametrize(
    ("cores", "computing", "room"),
    [(2.0, 1.0, 2), (2.0, 0.5, 4), (2.0, 0.022, 91), (2.0, 0.0, MOST_WORKERS), (0.5, 1.0, 1)],
)
def test_cores_bound_those_that_compute_and_not_those_that_wait(
    cores: float, computing: float, room: int
) -> None:
    assert count_affordable(cores, computing) == room


def tried_by_fix(fetch_s: float, own_s: float, computing: float, cores: int) -> int:
    """What the loader of --fix goes to, from one worker that is busy all the time."""
    seen = Observation(
        seconds=1000 * fetch_s, batches=1000, wait_s=1000 * (fetch_s - own_s),
        busy_s=1000 * fetch_s, cpu_s=1000 * fetch_s * computing, fetches=1000, queued=0.0,
    )  # fmt: skip
    governor = Governor(TurnLimits(1, 512, cores, 2, 4096), 1, 2)
    change = [governor.hear(seen) for _ in range(LOOKS)][-1]
    assert change is not None
    return change.active


@settings(deadline=None)
@given(st.floats(0.002, 0.2), st.floats(0.002, 0.2), st.floats(0.0, 1.0), st.sampled_from((2, 8)))
def test_a_rule_and_the_loader_of_fix_count_the_same(
    more_s: float, own_s: float, computing: float, cores: int
) -> None:
    fetch_s = 2 * own_s + more_s
    facts = {
        "step_seconds": fetch_s,
        "input": {
            "fetch_seconds": fetch_s,
            "exposed_share": 1 - own_s / fetch_s,
            "cpu_share": computing,
            "core_wait_share": 0.0,
        },
        "cores": {"allowed": cores},
        "loader": {"num_workers": 1},
    }
    wanted = count_workers(build_facts({"base": "preparing", "facts": facts}))
    # A float may fall on either side of a whole number.
    assert abs(tried_by_fix(fetch_s, own_s, computing, cores) - wanted) <= 1


@pytest.mark.parametrize(
    ("blocked", "cpu", "step", "cores"),
    [(62.0, 2.0, 4.0, 2), (38.0, 2.0, 10.0, 2), (0.0, 40.0, 12.0, 8), (20.0, 20.0, 10.0, 8)],
)
def test_the_loader_of_fix_goes_where_the_model_points(
    blocked: float, cpu: float, step: float, cores: int
) -> None:
    """A sleep of so many milliseconds a batch, some of it on a core; the device is beside it."""
    asleep = {"sleep_frac": plain(1.0)}
    facts = make_facts(
        batch=blocked + cpu, workers=1, cpu=cpu, blocked=blocked, read=0.0, host=1.0, device=step,
        cores=cores, demands=asleep,
    )  # fmt: skip
    found = recommend(fit(facts))
    assert not isinstance(found, Missing)
    fetch_s, own_s = (blocked + cpu) / 1e3, step / 1e3
    tried = tried_by_fix(fetch_s, own_s, cpu / (blocked + cpu), cores)
    assert found.workers / 1.3 - 1 <= tried <= found.workers * 1.3 + 1
