"""How many deliberate faults in the code the unit tests find."""
