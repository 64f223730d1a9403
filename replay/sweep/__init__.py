"""Experiments: many simulations from one file, on many processors or machines; resumable."""
