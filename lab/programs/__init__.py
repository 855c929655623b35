"""A user's own program: what it imports and reads, so that it can be copied before it starts.

It imports `base` and `protocol`, and never runs or imports the program. Begin with `own.py`.
"""

from __future__ import annotations

import re
from typing import Final

SUFFIX: Final = ".py"

TASK: Final = r"[a-z]+-(?:0|[1-9][0-9]{0,4})"
FOR_A_TASK: Final = re.compile(rf"({TASK})=(.*)", re.DOTALL)
"""`worker-0=a.py`: a task and its program."""


def names_a_program(argument: str) -> bool:
    """Whether an argument is the path of a program, not the name of an experiment."""
    return argument.endswith(SUFFIX) or "/" in argument or FOR_A_TASK.match(argument) is not None
