"""Signals of one rank of a recorded run: Timeline in, Facts out."""
