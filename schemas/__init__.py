"""What the services say to each other: events, records, decisions. Start with ``events.py``."""
