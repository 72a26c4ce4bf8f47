"""Loader settings found by trials, the patch that writes them down, and its undoing."""
