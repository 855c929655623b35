"""The modules that training programs import: records, data, flags, start, interrupts, models."""
