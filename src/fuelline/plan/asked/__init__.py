"""Questions to the planner, from the command line's words or from Python, and one way to answer."""
