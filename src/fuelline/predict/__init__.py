"""Rooflines, step times and plans: a model and a chip in, an estimate with its interval out."""
