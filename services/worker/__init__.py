"""Accelerators of one host, real or imagined: tasks under leases, progress, checkpoints."""
