"""Concepts as recipes: one TOML file each."""
