"""Ways to move the bytes."""
