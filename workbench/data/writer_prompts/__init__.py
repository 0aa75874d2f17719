"""Prompts of the writer that lets a language model write quartets."""
