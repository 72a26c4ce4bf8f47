"""Room for descriptors is made when they come near the limit, and only then."""

import resource
from collections.abc import Iterator

import pytest

from fuelline.fix.elastic.channel import make_room


@pytest.fixture
def limit() -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 1024:
        pytest.skip("the hard limit leaves no room here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    yield 512
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_limit_that_comes_near_is_raised(limit: int) -> None:
    raised = make_room(in_use=400)
    assert raised is not None
    assert raised[0] == limit < raised[1]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == raised[1]


def test_one_that_is_far_away_is_not(limit: int) -> None:
    assert make_room(in_use=100) is None
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == limit
