"""Runs in TensorBoard: records as event files, and a server for this host only."""
