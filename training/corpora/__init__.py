"""Corpora of synthetic documents: what is planned, who writes it, and how it is checked."""
