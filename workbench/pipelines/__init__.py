"""Several stages in a row, each in a run folder of its own, resumable."""
