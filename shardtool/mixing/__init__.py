"""Floor 1: how well it is mixed. Pure."""
