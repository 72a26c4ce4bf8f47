"""Serving: a steady load, the search for the best way, and all that is said about it."""
