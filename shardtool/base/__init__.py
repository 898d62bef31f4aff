"""Floor 0: arithmetic. Imports numpy and the pure standard library only."""
