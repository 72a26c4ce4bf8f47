"""Commands."""


def main() -> int:
    """Start."""
    return 0
