"""Floor 2: one file a real training loader. Pure."""
