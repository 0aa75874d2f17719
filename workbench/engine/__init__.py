"""Engines: what runs forwards with hooks, and the plan that decides how few are needed."""
