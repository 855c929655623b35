"""Convert Python arguments to arguments of the command line, with the same checks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from lab.errors import InputError, LabError
from lab.options import read_value
from lab.program import names_a_program
from lab.run.fitting import experiment_named
from lab.text import short, suggestion


def program_args(
    experiment: str, flags: Mapping[str, object], *, module: bool = False
) -> tuple[str, ...]:
    """Return the arguments of an experiment's program: `--epochs=3`.

    Args:
        experiment: The experiment, or the path of the user's own program, whose flags are unknown.
        flags: Name to value; True or False for a switch.
        module: Whether it is the name of the user's own module.

    Raises:
        InputError: The experiment or the flag does not exist, or the value is invalid.
    """
    if module or names_a_program(experiment):
        for name, value in flags.items():
            raise InputError(
                f"run() has no argument {name!r}, and the flags of {short(Path(experiment).name)}"
                " are not known",
                f"pass it as args=[{f'--{name}={value}'!r}]",
            )
        return ()
    known = experiment_named(experiment).flags
    arguments = []
    for name, value in flags.items():
        flag = known.get(name)
        if flag is None:
            raise InputError(
                f"{experiment!r} has no flag {name!r}",
                f"{suggestion(name, known)}see `lab experiments {experiment}`",
            )
        raw = str(value).lower() if isinstance(value, bool) else str(value)
        parsed = read_value(name, flag.parse, raw)
        if not flag.is_switch:
            arguments.append(f"--{name}={raw}")
        elif parsed is True:
            arguments.append(f"--{name}")
    return tuple(arguments)


def check_main_thread(name: str) -> None:
    """Check that this is the main thread, which receives Ctrl-C.

    Raises:
        LabError: It is another thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise LabError(f"`{name}()` must be called from the main thread", "call it from there")
