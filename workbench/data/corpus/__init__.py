"""Matched quartets of documents about what users of AI assistants aim at, and a chat set."""
