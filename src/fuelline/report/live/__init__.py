"""A running job on a screen of its own."""
