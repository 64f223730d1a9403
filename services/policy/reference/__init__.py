"""Policies as programs to read, in cvxpy: what the fast paths must come to, and do in tests."""
