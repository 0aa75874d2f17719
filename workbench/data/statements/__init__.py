"""True and false statements with their negations."""
