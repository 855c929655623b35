"""The command line: check the arguments, call one verb, turn errors into exit codes.

It imports the verbs, and heavy modules only when a command needs them, so that `lab --help` is
fast. Begin with `main`, below.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from shutil import get_terminal_size

from lab import __version__
from lab.base import console, signals
from lab.base.errors import ConfigError, InputError, LabError
from lab.base.log import LOG, shown_by
from lab.base.shipped import install_command, named_extras, origin
from lab.base.text import suggestion
from lab.cli import registry
from lab.verbs import COMMANDS, python_name


def main(argv: Sequence[str]) -> int:
    """Run one command.

    Args:
        argv: The arguments of `lab`.

    Returns:
        The exit code: 0 success, 1 failure, 2 wrong usage, 3 inconclusive, 130 interrupted.
    """
    # Arguments after `--` belong to the program.
    end = argv.index("--") if "--" in argv else len(argv)
    arguments = [argument for argument in argv[:end] if argument != "--debug"]
    debug = len(arguments) < end
    arguments += argv[end:]
    with signals.as_interrupt(), shown_by(console.show):
        return exit_code_of(lambda: _dispatch(arguments), debug=debug)


def _dispatch(arguments: list[str]) -> None:
    match arguments:
        case []:
            print(registry.overview())
        case ["-h" | "--help" | "help"]:
            print(registry.full_help())
        case ["--version"]:
            print(f"lab {__version__}, {origin()}")
        case ["__complete", *words]:
            # Imported here: only the completion of a shell needs it.
            from lab.cli.completion import candidates  # noqa: PLC0415

            sys.stdout.writelines(f"{each}\n" for each in candidates(words))
        case ["help", name, *rest]:
            _run(name, ["--help", *rest])
        case [name, *rest]:
            _run(name, rest)


def _run(name: str, argv: list[str]) -> None:
    """Run a command of the registry, or print its help."""
    if name not in COMMANDS:
        near = suggestion(name, COMMANDS)
        problem = f"no option {name!r}" if name.startswith("-") else f"no command {name!r}"
        raise InputError(problem, f"{near}see `lab --help`")
    from lab.base import command_line  # noqa: PLC0415  (`lab --help` needs none of it)

    module = importlib.import_module(f"lab.verbs.{python_name(name)}")
    if command_line.asks_for_help(argv):
        from lab.cli import help  # noqa: A004, PLC0415  (a module, not the built-in)

        program = next((argument for argument in argv if not argument.startswith("-")), None)
        print(help.command_help(name, module, program))
        return
    command_line.call(name, module.command, argv)


def exit_code_of(action: Callable[[], None], *, debug: bool) -> int:
    """Run a command; turn an error into one line. Only this function catches every exception.

    Args:
        action: The command.
        debug: Print the traceback of the error.

    Returns:
        The exit code.
    """
    try:
        with named_extras():
            action()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as in `lab runs | head -1`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  (the outermost frame)
        if debug:
            traceback.print_exc()
        return _print_error(error)
    return 0


def _print_error(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        LOG.error("error: interrupted")
        return signals.EXIT_INTERRUPTED
    if isinstance(error, ConfigError):
        for problem in error.problems:
            LOG.error(problem)
        return error.exit_code
    if isinstance(error, LabError):
        line = f"error: {error}"
        if error.fix and sys.stderr.isatty() and len(line) > get_terminal_size().columns:
            LOG.error(f"error: {error.what}")
            line = f"  {error.fix}"
        LOG.error(line)
        return error.exit_code
    if isinstance(error, ModuleNotFoundError) and _is_foreign(error.name):
        LOG.error(
            f"error: this Python has no package {error.name};"
            f" install what lab needs with `{install_command()}`"
        )
        return 1
    if isinstance(error, OSError) and error.filename is not None:
        LOG.error(f"error: {error.filename}: {_lower(error.strerror)}; {_fix(error)}")
        return 1
    if isinstance(error, OSError) and error.errno == errno.EBADF:
        LOG.error("error: stdout is closed; redirect it to a file, or to /dev/null")
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        LOG.error(f"error: the disk is full; {_fix(error)}")
    else:
        LOG.error(f"error: internal: {type(error).__name__}: {error}; run it again with --debug")
    return 1


def _is_foreign(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] not in {"lab", *sys.stdlib_module_names}


def _lower(text: str | None) -> str:
    text = text or "cannot be used"
    return text[:1].lower() + text[1:]


def _fix(error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "free some space and run the command again; saved data is intact"
    return "check the path and its permissions"
