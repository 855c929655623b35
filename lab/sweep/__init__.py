"""A sweep: many runs of one experiment over a grid of values, and their statistics."""
