"""Continuous batching by discrete events: requests and a step time in, latencies and fleets out."""

from fuelline.plan.simulation.arrivals import Arrivals, Lengths, draw_requests
from fuelline.plan.simulation.fleet import ServiceLimits, plan_fleet
from fuelline.plan.simulation.latencies import Slo, summarise
from fuelline.plan.simulation.replica import Room, run_replica
from fuelline.plan.simulation.trace import read_requests

__all__ = [
    "Arrivals",
    "Lengths",
    "Room",
    "ServiceLimits",
    "Slo",
    "draw_requests",
    "plan_fleet",
    "read_requests",
    "run_replica",
    "summarise",
]
