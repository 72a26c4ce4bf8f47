"""Root causes that a recorded run shows, one a file."""
