"""Conversations of several turns, for following a model along directions."""
