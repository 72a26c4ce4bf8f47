"""Nouns of a diagnosis: facts, findings, forecasts, trials."""
