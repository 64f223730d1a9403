"""How fast jobs run, alone and beside each other: told, measured or completed."""
