"""The pipeline model of a recorded run: fitted, asked what would be, and what it is worth."""
