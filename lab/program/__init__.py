"""The user's own program: its source, its flags, its data files."""
