"""Lessons: their stages, and whether a student's runs and answers pass them."""
