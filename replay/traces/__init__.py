"""Traces: read as they are published, drawn by seed, measured, changed, written."""
