"""Floor 3: every byte that moves."""
