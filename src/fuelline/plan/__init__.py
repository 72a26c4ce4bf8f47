"""Language models on chips: what limits them, what they reach, what they cost and need."""
