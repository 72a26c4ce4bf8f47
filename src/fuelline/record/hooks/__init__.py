"""Hooks: what runs inside the user's training job, and must not be noticed there.

`SITE_DIR` first on PYTHONPATH is all it takes: its `sitecustomize` waits for the framework in
every Python that the job starts, and then `install` wraps a handful of points. Each writes
fixed-width records to the spool. Nothing here raises into the job, and nothing here needs more than
the standard library and the framework that the job has imported itself.
"""
# ruff: noqa: PTH100, PTH118, PTH120 - a guest loads as little as it can; no pathlib

import os

__all__ = ["SITE_DIR"]

SITE_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
