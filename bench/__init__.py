"""Measurements of Fuelline, on its own and side by side with its peers."""
