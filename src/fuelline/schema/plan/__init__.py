"""Nouns of a plan: chips, models, estimates, answers."""
