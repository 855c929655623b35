"""Compares runs: their settings and their metrics."""
