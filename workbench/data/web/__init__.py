"""The grammar of neutral web-like text."""
