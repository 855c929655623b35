"""Shell completion: what can stand where on the command line, and as a script for each shell.

`spec.py` describes all commands, and a template for each shell makes a script of that, so that a
shell answers at once. What depends on the moment, such as the collected runs, the script asks for
with `lab __complete runs` (`dynamic.py`), which imports next to nothing. No shell ever evaluates
such an answer. A script takes it line by line, and leaves out what is more than plain letters,
digits, dots and dashes.
"""
