"""Likely and unlikely endings: a control for truth directions."""
