"""The verbs of `lab`, one module and one function each: `lab run` and `lab.run` are `run.py`.

They import every room below, and nothing of the command line. Begin with `run.py`: its signature
declares the flags, its docstring is the help.
"""

from __future__ import annotations

from typing import Final

TAKEN: Final = ("backends", "class", "import")
"""The commands whose names Python has, or a room of `lab`; in Python, theirs end with `_`."""


def python_name(command: str) -> str:
    """Return the name of a command in Python: that of its module, and of the function in it."""
    return f"{command}_" if command in TAKEN else command
