"""A bundle: one archive from which a room without a network gets all that `lab` needs."""
