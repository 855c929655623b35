"""Make absl's flags, which `tf.app.flags` has been since TensorFlow 1.5, those of 1.0 to 1.4."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any, Final

from absl import flags

_VALUES: Final = frozenset({"true", "false", "t", "f", "yes", "no", "1", "0"})


def restore_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Accept the flags and the arguments that TensorFlow 1.0 to 1.4 accept.

    - A program may declare a flag that a library has declared before, such as `log_dir`.
    - Undeclared arguments are ignored.
    - `--flag False` sets a boolean flag, as `--flag=False` does.
    - `FLAGS._parse_flags()` parses the command line.

    Args:
        values: The flags that the libraries have declared, and the program will declare.
    """
    for name in values:
        values[name].allow_override = True
    # Python finds the method that a call uses in the class, not in the object.
    kind: Any = type(values)
    original_call = kind.__call__

    @functools.wraps(original_call)
    def parse(self: Any, argv: Sequence[str], known_only: bool = True) -> list[str]:
        del known_only
        left: list[str] = original_call(self, _joined(self, argv), known_only=True)
        return left

    kind.__call__ = parse
    kind._parse_flags = lambda self, args=None: self(sys.argv if args is None else args)


def _joined(values: flags.FlagValues, argv: Sequence[str]) -> list[str]:
    """Return the arguments; the value of a boolean flag is joined to the flag."""
    joined: list[str] = []
    for argument in argv:
        name = joined[-1].lstrip("-") if joined and joined[-1].startswith("-") else ""
        if name in values and values[name].boolean and argument.lower() in _VALUES:
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined
