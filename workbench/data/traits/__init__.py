"""Traits with their opposites, and the questions that persona vectors are drawn from."""
