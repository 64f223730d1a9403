"""Moving about in a log: what each service knew after any record, and what it decided on it."""
