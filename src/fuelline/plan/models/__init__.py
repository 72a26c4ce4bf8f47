"""Shapes of models: read from what the user has, judged, or guessed by their size."""
