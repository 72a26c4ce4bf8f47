"""How fast a core is at this moment: the CPU time of a fixed piece of Python.

Shared machines change their speed by a factor of two within hours, and cores of different makes
differ by more. What takes as long as it takes to run some lines of Python, such as launching an
operator, is compared with this (`signals/recorded/compute.py`). Price: 0.2 ms at each call.
"""

import time

__all__ = ["time_spin"]

_TURNS = 2000


def time_spin() -> int:
    """Nanoseconds of CPU that the piece took just now."""
    start_ns = time.thread_time_ns()
    value = 0
    for number in range(_TURNS):
        value = (value * 3 + number) & 0xFFFF
    return time.thread_time_ns() - start_ns
