"""Root causes that an imported trace shows, one per file."""
