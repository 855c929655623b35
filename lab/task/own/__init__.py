"""Run a user's own program unchanged: its start, and the parts of its environment it expects."""
