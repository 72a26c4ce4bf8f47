"""A rule and an importer for Fuelline, as an example."""
