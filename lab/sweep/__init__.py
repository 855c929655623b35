"""Many runs of one experiment over a grid of what is varied, and what follows from what."""
