"""What would have been, had one thing been different."""
