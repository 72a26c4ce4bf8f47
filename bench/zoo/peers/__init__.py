"""Other tools on the same cases: each is run as its users run it, and its words are kept."""
