"""Compare published results, claim by claim, with runs of the lab."""
