"""The commands, one module each. Each parses, calls a service and prints.

Each module has a function `command`, whose parameters define the command line.
"""
