"""Who runs where in the coming round (§5), so that time received comes to what the policy wants."""
