"""What share of time each job should have on each worker type (§4): a program over classes."""
