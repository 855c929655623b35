"""Published results, claim by claim, against runs of the lab."""
