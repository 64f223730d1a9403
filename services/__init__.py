"""The four services, which share nothing but the log, and the runtime that bears them."""
