"""Check whether `lab` can work on this host, and suggest fixes."""
