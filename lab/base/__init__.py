"""What every room needs and that knows nothing about training: errors, text, units, log, tables.

It imports no other room, and the image has it, too. Begin with `errors.py` and `text.py`.
"""
