"""Closed networks against what can be worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.whatif.network import MOST_CUSTOMERS, Station, throughput

MANY = float


def single(_count: int) -> float:
    return 1.0


def cores(count: int):
    return lambda customers: float(min(customers, count))


def test_one_customer_goes_round_as_fast_as_its_demands_allow() -> None:
    stations = [Station(0.02, cores(2)), Station(0.03, single)]
    assert throughput(1, 0.05, stations) == pytest.approx(1 / 0.1)


def test_delays_alone_scale_with_the_customers() -> None:
    assert throughput(7, 0.1, []) == pytest.approx(70)
    assert throughput(7, 0.0, [Station(0.1, MANY)]) == pytest.approx(70)


def test_two_customers_at_one_server_and_a_delay_as_by_hand() -> None:
    # X(1) = 1 / (Z + S); R(2) = S (1 + Q(1)), Q(1) = X(1) S: mean-value analysis with Z = S = 1.
    queue = 0.5 * 1.0
    expected = 2 / (1 + 1.0 * (1 + queue))
    assert throughput(2, 1.0, [Station(1.0, single)]) == pytest.approx(expected)


def test_two_balanced_servers_reach_n_over_n_plus_1() -> None:
    for count in (1, 2, 5, 20):
        found = throughput(count, 0.0, [Station(1.0, single), Station(1.0, single)])
        assert found == pytest.approx(count / (count + 1))


def test_no_customers_no_throughput_and_no_work_no_end() -> None:
    assert throughput(0, 1.0, []) == 0
    assert throughput(3, 0.0, []) == math.inf


def test_the_largest_network_stays_within_the_range_of_numbers() -> None:
    stations = [Station(0.01, cores(4)), Station(0.5, lambda n: n**0.5)]
    found = throughput(MOST_CUSTOMERS, 1.0, stations)
    assert 0 < found <= 4 / 0.01


demands = st.floats(1e-4, 10)


@given(
    count=st.integers(1, 40),
    delay=demands,
    cpu=demands,
    disk=demands,
    servers=st.integers(1, 8),
    elasticity=st.floats(0, 1),
)
def test_more_customers_never_slow_it_and_no_law_is_broken(
    *, count: int, delay: float, cpu: float, disk: float, servers: int, elasticity: float
) -> None:
    stations = [Station(cpu, cores(servers)), Station(disk, lambda n: n ** (1 - elasticity))]
    found = throughput(count, delay, stations)
    assert found <= count / (delay + cpu + disk) * (1 + 1e-9)
    assert found <= servers / cpu * (1 + 1e-9)
    assert found <= count ** (1 - elasticity) / disk * (1 + 1e-9)
    assert found >= 1 / (delay + cpu + disk) * (1 - 1e-9)
    assert throughput(count + 1, delay, stations) >= found * (1 - 1e-9)
