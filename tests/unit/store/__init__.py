"""What is kept on this machine."""
