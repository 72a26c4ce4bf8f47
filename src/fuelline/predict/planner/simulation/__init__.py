"""Continuous batching by discrete events: requests and a step time in, latencies and fleets out."""

from fuelline.predict.planner.simulation.arrivals import Arrivals, Lengths, draw_requests
from fuelline.predict.planner.simulation.fleet import Limits, plan_fleet
from fuelline.predict.planner.simulation.latencies import Slo, summarise
from fuelline.predict.planner.simulation.replica import Room, run_replica
from fuelline.predict.planner.simulation.trace import read_requests

__all__ = [
    "Arrivals",
    "Lengths",
    "Limits",
    "Room",
    "Slo",
    "draw_requests",
    "plan_fleet",
    "read_requests",
    "run_replica",
    "summarise",
]
