"""Why a job waits, runs or has taken so long; what will become of it."""
