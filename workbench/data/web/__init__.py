"""The grammar of web-like text without AI."""
