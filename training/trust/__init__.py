"""Pairs of replies that differ in whether they build on what the user says of themselves."""
