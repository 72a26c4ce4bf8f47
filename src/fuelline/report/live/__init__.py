"""A running job on its own screen."""
