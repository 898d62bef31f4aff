"""Floor 5: tables, JSON, figures."""
