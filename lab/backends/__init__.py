"""The backends: each boots and finds environments, and has a package of its own."""
