"""Floor 1: who reads what. Pure."""
