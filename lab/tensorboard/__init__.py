"""A run in TensorBoard: its records as event files, and a page that nobody else can reach."""
