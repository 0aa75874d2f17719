"""The scenario taxonomy and the phrase books that the template writer draws from."""
