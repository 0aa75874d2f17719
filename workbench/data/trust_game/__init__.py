"""Trust game items, bank v0."""
