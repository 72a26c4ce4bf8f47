"""Batches prepared on other hosts: workers that Ray places there, for the elastic loader."""
