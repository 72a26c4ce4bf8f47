"""Samplers: one small file a source that the observer reads."""
