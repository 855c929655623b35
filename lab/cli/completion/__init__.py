"""Shell completion: the values of each argument and flag, and a script for each shell.

`spec.py` describes all commands. A template for each shell turns this into a script, so that a
shell completes without a call of lab. For names that change, such as the collected runs, the script
calls `lab __complete runs` (`dynamic.py`), which imports almost nothing. No shell evaluates its
output. A script reads it line by line, and ignores lines with other characters than letters,
digits, dots, underscores and dashes.
"""
