"""Space sharing (§3.1): two jobs on the same workers; which pairs, how long, and who of a class."""
