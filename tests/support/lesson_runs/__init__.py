"""Runs for each lesson: `NAME_lesson.py`, with `_` for each hyphen of its name."""
