"""A forked process becomes a program: from here on it is as if Python had just started it."""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import types
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import NoReturn

from lab.task import guise


def become(argv: Sequence[str], environ: Mapping[str, str], brought: Mapping[str, str]) -> NoReturn:
    """Run a program as `__main__`, and leave the way that Python would.

    Args:
        argv: The interpreter, the program, its arguments.
        environ: The program's variables.
        brought: Variables that an import has set; they are the program's, too.

    Raises:
        SystemExit: The program has ended; it has to reach the top of the process.
    """
    program, *arguments = argv[1:]
    os.environ.clear()
    os.environ.update({**environ, **brought})
    with contextlib.suppress(OSError):  # else who looks it up sees what it was forked from
        guise.put_on(argv, environ)
    _forget_randomness()
    _forget_the_host()
    for name in [name for name in sys.modules if name.partition(".")[0] == "lab"]:
        # Whatever of the lab the program imports, it finds as it is on disk now.
        del sys.modules[name]
    sys.argv[:] = [program, *arguments]
    sys.orig_argv[:] = argv
    sys.path.insert(0, str(Path(program).resolve().parent))
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=program,
        __loader__=SourceFileLoader("__main__", program),
        __builtins__=builtins,
        __cached__=None,
        __annotations__={},
    )
    sys.modules["__main__"] = main
    _run(program, main.__dict__)


def _run(program: str, namespace: dict[str, object]) -> NoReturn:
    try:
        source = Path(program).read_bytes()
        exec(compile(source, program, "exec", dont_inherit=True), namespace)  # noqa: S102
    except Exception as error:  # noqa: BLE001 (Python itself would report it, whatever it is)
        # Without the frame of this function, which is no part of the program.
        traceback = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        sys.exit(1)
    # A KeyboardInterrupt is left to Python, which ends the process by the signal itself.
    sys.exit(0)


def _forget_randomness() -> None:
    """What was seeded before the fork must not give all programs the same numbers.

    Python sees to its own; TensorFlow has not drawn yet when it is imported.
    """
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()


def _forget_the_host() -> None:
    """What was asked of the host before the fork is another on the task's node: its name."""
    if platform := sys.modules.get("platform"):
        vars(platform)["_uname_cache"] = None
