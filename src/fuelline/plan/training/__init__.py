"""Training: the time and memory of a step, the search for a layout, and what breaks."""
