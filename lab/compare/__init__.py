"""Runs side by side: how they were made, and what each came to."""
