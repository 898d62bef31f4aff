"""Floor 5: words in, words out."""
