"""What runs a user's own program unchanged: the start, and what it expects of its environment."""
