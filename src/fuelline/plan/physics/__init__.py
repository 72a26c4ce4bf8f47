"""The time of one step: operators, bytes, exchanges, and the constants that chips reach."""
