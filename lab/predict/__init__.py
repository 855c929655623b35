"""What a run has learned, asked on this side: its saved model answers, in NumPy alone."""
