"""Commands that change something: loader settings, scripts, how a data set lies on the disk."""
