"""Floor 4: one verb a file."""
