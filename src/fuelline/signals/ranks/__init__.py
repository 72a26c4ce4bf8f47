"""Several ranks of a recorded run: who is late, and what the exchange costs."""
