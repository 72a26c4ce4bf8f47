"""What a Python program gets: runs as objects, and functions that answer as the commands do.

The names are handed out by `fuelline/__init__.py`, when they are first used. Everything here runs
in the caller's process, without the bound on memory that the command line sets itself.
"""
