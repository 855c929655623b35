"""What training programs import: records, data, flags, the start, interrupts, saved models."""
