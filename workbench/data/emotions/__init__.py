"""Emotions, topics and requests for stories; decisions on whether to trust somebody."""
