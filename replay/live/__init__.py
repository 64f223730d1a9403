"""What commands do against a cluster that runs: start it, submit to it, look at it."""
