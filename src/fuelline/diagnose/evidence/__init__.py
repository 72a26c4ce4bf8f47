"""Evidence, judgements and remedies that several rules share, by what they are about."""
