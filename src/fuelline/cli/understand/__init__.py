"""Commands that explain a run: diagnosis, comparison, forecasts, and what the machine could do."""
