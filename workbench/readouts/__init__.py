"""Behavioural instruments: each says which prompts it needs and scores the answers."""
