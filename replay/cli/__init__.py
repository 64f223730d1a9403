"""The command line: a file a command; what it does is elsewhere, and can be called without it."""
