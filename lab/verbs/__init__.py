"""The verbs of `lab`, a module each: `lab run` and `lab.run(...)` are `run` of `run.py`.

A verb may import every room but `cli`, which calls it.
Begin with `ps.py`: a function with its options, a result, and how it is shown.
"""

from __future__ import annotations

from typing import Final

TAKEN: Final = ("backends", "class", "import")
"""The commands whose names Python has, or a room of `lab`; in Python, theirs end with `_`."""


def python_name(command: str) -> str:
    """Return the name of a command in Python: that of its module, and of the function in it."""
    return f"{command}_" if command in TAKEN else command
