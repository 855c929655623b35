"""One command, one file: parse, call, print.

Each holds a function `command` whose parameters say what may stand on the command line.
"""
