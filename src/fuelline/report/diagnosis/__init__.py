"""What is said of runs: a diagnosis, a comparison, forecasts, trials, ceilings."""
