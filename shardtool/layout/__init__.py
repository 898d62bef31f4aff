"""Floor 1: where bytes go. Pure."""
