"""Runs on disk: their files, records, summaries and archives."""
