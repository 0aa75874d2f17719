"""Scenarios and phrases of the trust pairs; see README.md."""
