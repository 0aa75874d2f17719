"""Roles, what the default Assistant is told, and the questions that all of them are asked."""
