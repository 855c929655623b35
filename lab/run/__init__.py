"""Runs in the local run store: preparation, execution, collection, summary and tables."""
