"""Making large traces out of real ones, and measuring who reads them how fast."""
