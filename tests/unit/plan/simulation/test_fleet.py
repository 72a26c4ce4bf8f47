"""Fleets: what more load, tighter limits and broken hosts ask for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fuelline.plan.physics.constants import shipped_constants
from fuelline.plan.physics.deployment import Deployment
from fuelline.plan.simulation import Arrivals, Lengths, ServiceLimits, Slo, plan_fleet
from fuelline.plan.simulation.arrivals import draw_requests, draw_underway
from fuelline.plan.simulation.fleet import add_spares, smallest
from fuelline.plan.simulation.latencies import summarise
from fuelline.plan.simulation.replica import run_replica
from fuelline.plan.simulation.service import busiest, serve
from fuelline.plan.simulation.steps import find_room, remember_steps
from fuelline.schema.plan.chips import find_chip
from fuelline.schema.plan.estimates import Parallelism, Slice
from fuelline.schema.plan.models import name_model
from fuelline.schema.plan.precision import parse_precision
from fuelline.schema.plan.simulated import Request


def instance(tp: int = 1, model: str = "llama-3.1-8b") -> Deployment:
    return Deployment(
        model=name_model(model),
        chip=find_chip("h100"),
        precision=parse_precision("fp8"),
        spread=Parallelism(tp=tp),
        constants=shipped_constants(),
    )


LIMITS = ServiceLimits(
    arrivals=Arrivals(rate_per_s=40),
    prompt=Lengths(mean=1000),
    output=Lengths(mean=100),
    slo=Slo(ttft_s=0.5, tpot_s=0.02),
)


def at_rate(rate: float, burstiness: float = 1.0) -> ServiceLimits:
    return replace(LIMITS, arrivals=Arrivals(rate_per_s=rate, burstiness=burstiness))


def test_more_load_never_needs_fewer_instances() -> None:
    counts = [smallest(instance(), at_rate(rate)) for rate in (5, 40, 160)]
    assert counts == sorted(counts)
    assert counts[0] >= 1
    assert counts[-1] > counts[0]


def test_the_smallest_number_keeps_the_limits_and_one_less_does_not() -> None:
    here = instance()
    count = smallest(here, at_rate(100))
    step = remember_steps(here)
    enough, fewer = (serve(here, each, at_rate(100), step) for each in (count, count - 1))
    assert enough is not None
    assert enough.attained_share >= 0.95
    assert fewer is None or fewer.overloaded or fewer.attained_share < 0.95


def test_bursts_make_the_tail_longer() -> None:
    here = instance()
    step = remember_steps(here)
    even, bursty = (serve(here, 2, at_rate(40, each), step) for each in (0.0, 4.0))
    assert even is not None
    assert bursty is not None
    assert bursty.ttft_s.p95 > even.ttft_s.p95


def test_a_light_load_has_the_static_latency() -> None:
    here = instance()
    found = serve(here, 1, at_rate(0.01), remember_steps(here))
    assert found is not None
    static = here.prefill(1, 1000).seconds
    assert found.ttft_s.p50 == pytest.approx(static, rel=0.03)
    assert found.tpot_s is not None
    assert found.tpot_s.p50 == pytest.approx(here.decode(1, 1050).seconds, rel=0.03)


def test_limits_that_one_request_breaks_alone_are_never_searched() -> None:
    answer = plan_fleet([instance()], replace(LIMITS, slo=Slo(tpot_s=1e-4)))
    (option,) = answer.options
    assert option.simulated is None
    assert "a token alone takes" in option.why_not
    assert option.replicas == 0
    assert option.usd_per_hour is None
    assert "No size meets the limits" in answer.advice[0]


def test_head_room_and_spares_come_on_top() -> None:
    answer = plan_fleet([instance(), instance(2)], LIMITS)
    for option in answer.options:
        assert option.replicas <= option.with_headroom <= option.with_spares
        assert option.chips == option.with_spares * option.spread.chips
        assert option.simulated is not None
        assert option.simulated.attained_share >= 0.95
    best = answer.options[0].simulated
    assert best is not None
    assert best.ttft_s.p95_low is not None
    assert best.ttft_s.p95_high is not None
    assert best.ttft_s.p95_low <= best.ttft_s.p95 <= best.ttft_s.p95_high
    costs = [option.usd_per_hour or 0.0 for option in answer.options]
    assert costs == sorted(costs)


def test_larger_instances_break_more_often() -> None:
    assert add_spares(100, 1) - 100 < add_spares(100, 64) - 100
    assert add_spares(1, 8) == 2  # eight chips together are broken 0.4 % of the time


def test_a_trace_is_dealt_out_and_every_request_counts() -> None:
    trace = tuple(Request(index * 0.05, 500 + index, 20) for index in range(200))
    found = serve(instance(), 1, replace(LIMITS, trace=trace), remember_steps(instance()))
    assert found is not None
    assert found.requests == 180  # a tenth is warm-up


def test_of_a_long_trace_the_busiest_stretch_counts() -> None:
    calm = [Request(float(each), 10, 10) for each in range(50)]
    burst = [Request(100 + each / 100, 10, 10) for each in range(20)]
    found = busiest((*calm, *burst), 20)
    assert found == burst
    assert busiest(tuple(calm), 1000) == calm


def test_requests_longer_than_the_cache_do_not_keep_limits() -> None:
    trace = (Request(0.0, 10_000_000, 10), *(Request(1.0 + each, 100, 5) for each in range(9)))
    found = serve(instance(), 1, replace(LIMITS, trace=trace), remember_steps(instance()))
    assert found is not None
    assert found.refused == 1
    assert found.attained_share < 1


def test_pools_apart_pay_only_if_they_need_fewer() -> None:
    answer = plan_fleet([instance()], at_rate(2), pools=True)
    assert answer.pools is not None
    assert not answer.pools.pays
    assert answer.pools.transfer_s > 0
    assert "one instance carries the load" in answer.pools.why


def test_pools_apart_do_not_pay_where_prompts_are_nothing_beside_outputs() -> None:
    """Pools that hold hundreds at once fill slowly: a short run would find them nearly empty."""
    long = replace(
        LIMITS,
        arrivals=Arrivals(rate_per_s=50),
        prompt=Lengths(mean=128),
        output=Lengths(mean=1024),
        slo=Slo(tpot_s=0.04),
    )
    vllm = next(each for each in shipped_constants().engine if each.name == "vllm")
    half = replace(instance(), precision=parse_precision("bf16"), engine=vllm)
    pools = plan_fleet([half], long, pools=True, margin=False).pools
    assert pools is not None
    assert not pools.pays


def test_a_run_is_long_enough_for_what_an_instance_holds() -> None:
    here = instance()
    long = replace(at_rate(8), output=Lengths(mean=1000), slo=Slo())
    found = serve(here, 1, long, remember_steps(here))
    assert found is not None
    assert found.requests > 2.4 * found.running


def test_a_service_starts_with_what_it_will_hold() -> None:
    here = instance()
    long = replace(at_rate(8), output=Lengths(mean=1000), slo=Slo())
    found = serve(here, 1, long, remember_steps(here))
    begun = draw_requests(3000, long.arrivals, long.prompt, long.output)
    room = find_room(here, long.context)
    from_empty = summarise([run_replica(begun, remember_steps(here), room)], Slo())
    assert found is not None
    assert from_empty is not None
    assert found.running == pytest.approx(from_empty.running, rel=0.1)
    assert found.tpot_s is not None
    assert from_empty.tpot_s is not None
    assert found.tpot_s.p50 == pytest.approx(from_empty.tpot_s.p50, rel=0.05)


def test_what_fills_a_service_counts_in_no_figure() -> None:
    begun = draw_underway(50, Lengths(mean=1000), Lengths(mean=100))
    users = [Request(0.1 * each, 1000, 100) for each in range(40)]
    room = find_room(instance(), 1100.0)
    run = run_replica([*begun, *users], remember_steps(instance()), room)
    found = summarise([run], Slo())
    assert len(run.served) == 90
    assert found is not None
    assert found.requests == 36  # a tenth of the users found another service than the rest


def test_rounding_is_fine_grained() -> None:
    here = instance()
    step = remember_steps(here)
    exact = here.step([Slice(37, 1, 1234)]).seconds
    assert step([Slice(37, 1, 1234)]) == pytest.approx(exact, rel=0.03)


def test_head_room_is_of_what_instances_carry_not_of_their_number() -> None:
    found = plan_fleet([instance()], at_rate(0.01)).options[0]
    assert (found.replicas, found.with_headroom) == (1, 1)
    busy = plan_fleet([instance()], at_rate(120), pools=True).options[0]
    assert busy.carries_per_s is not None
    assert busy.replicas < busy.with_headroom
    each = busy.carries_per_s / busy.bought
    assert 0.95 * 120 / 0.8 <= busy.with_headroom * each <= 120 / 0.8 + 1.5 * each


def test_what_instances_carry_is_more_than_they_were_asked_for() -> None:
    found = plan_fleet([instance()], at_rate(160), most_chips=1).options[0]
    free = plan_fleet([instance()], at_rate(160), pools=True).options[0]
    assert found.short
    assert found.bought == 1
    assert found.carries_per_s is not None
    assert free.carries_per_s is not None
    assert found.carries_per_s < 160 <= free.carries_per_s
