"""Root causes that a recorded run shows, one per file."""
