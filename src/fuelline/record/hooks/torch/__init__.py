"""Hooks for PyTorch."""
