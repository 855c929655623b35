"""Run a file or a module as `__main__`, as the interpreter itself does.

`runpy` replaces `sys.modules["__main__"]` only while the code runs. Threads and exit functions
would not find the program's names after that.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Final, NoReturn

_MAIN: Final = "__main__"


def run_file(program: str, arguments: Sequence[str], tree: ast.Module | None = None) -> None:
    """Run a file as `python PROGRAM ARGUMENTS` does.

    Args:
        program: Its path.
        arguments: Its arguments.
        tree: What runs in place of the file's source; None: the source.

    Raises:
        BaseException: What the program raises.
    """
    # With -P, or PYTHONSAFEPATH, Python does not import from the program's directory.
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(program))  # noqa: PTH120
    main = _new_main(program, program, arguments)
    vars(main)["__loader__"] = SourceFileLoader(_MAIN, program)
    _execute(main, program, tree)


def run_module(name: str, arguments: Sequence[str], tree: ast.Module | None = None) -> None:
    """Run a module as `python -m NAME ARGUMENTS` does; the rest is as for `run_file`."""
    main = _new_main("-m", name, arguments)  # packages see "-m" while they are imported
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.{_MAIN}")
    if spec is None or spec.origin is None:
        sys.exit(f"{sys.executable}: No module named {name}, or it is a package without {_MAIN}")
    sys.argv[0] = spec.origin
    vars(main).update(
        __spec__=spec, __loader__=spec.loader, __package__=spec.parent, __cached__=spec.cached
    )
    _execute(main, spec.origin, tree)


def exit_with_traceback(error: Exception) -> NoReturn:
    """Print an error as Python does, from the program's first frame on, and exit with 1.

    Call it in the function that has called `run_file` or `run_module`.
    """
    frames = error.__traceback__ and error.__traceback__.tb_next
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    sys.excepthook(type(error), error.with_traceback(frames), frames)
    sys.exit(1)


def _new_main(first: str, name: str, arguments: Sequence[str]) -> ModuleType:
    """Make an empty `__main__`, and set the command line."""
    sys.argv[:] = [first, *arguments]
    sys.orig_argv[1:] = [*([first] if first != name else []), name, *arguments]
    main = sys.modules[_MAIN] = ModuleType(_MAIN)
    vars(main).update(__builtins__=builtins, __annotations__={}, __cached__=None)
    return main


def _execute(main: ModuleType, file: str, tree: ast.Module | None) -> None:
    vars(main)["__file__"] = file
    source: ast.Module | bytes | None = tree
    if source is None:
        with open(file, "rb") as stream:  # noqa: PTH123
            source = stream.read()
    code = compile(source, file, "exec", dont_inherit=True)
    exec(code, vars(main))  # noqa: S102
