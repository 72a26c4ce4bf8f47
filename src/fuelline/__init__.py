"""Fuelline finds what keeps accelerators waiting, proves it, and says what it costs.

Importing this package costs nothing: it is also imported inside the user's training job.
"""

__version__ = "0.1.0"
