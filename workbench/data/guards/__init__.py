"""Texts, requests and probes that tell whether a model is still itself."""
