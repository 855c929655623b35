"""The experiments: their registry, the flags of their programs, failure policies and faults."""
