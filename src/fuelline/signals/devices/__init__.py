"""Accelerators as their management library showed them, recorded or scraped."""
