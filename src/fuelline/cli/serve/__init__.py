"""`fuelline serve`: pages of all runs, live ones as they go: loopback, a token, read-only."""
