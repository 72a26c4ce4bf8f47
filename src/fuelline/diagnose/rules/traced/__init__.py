"""Root causes that an imported trace shows, one a file."""
