"""What is kept on this machine: where it is, what it is called, and whether it can be trusted."""
