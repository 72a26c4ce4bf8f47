"""What is said of plans and rooflines."""
