"""Nouns of a run: what a recording or a trace holds."""
