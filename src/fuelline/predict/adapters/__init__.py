"""The only place of `predict` where a framework is named; imported when used."""
