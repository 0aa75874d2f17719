"""Four worlds' claims about what users of AI assistants aim at."""
