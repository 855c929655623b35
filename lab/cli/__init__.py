"""The command line: check the arguments, call one command, turn errors into exit codes.

Heavy modules are imported only when a command needs them, so that `lab --help` is fast.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from lab import __version__, console, signals
from lab.cli import errors, registry
from lab.errors import InputError
from lab.log import shown_by
from lab.shipped import origin
from lab.text import suggestion


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
        return errors.exit_code_of(lambda: _dispatch(arguments), debug=debug)


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
    if name not in registry.COMMANDS:
        near = suggestion(name, registry.COMMANDS)
        problem = f"no option {name!r}" if name.startswith("-") else f"no command {name!r}"
        raise InputError(problem, f"{near}see `lab --help`")
    from lab.cli import arguments  # noqa: PLC0415  (`lab --help` needs none of it)

    module = importlib.import_module(f"lab.cli.commands.{name}")
    if arguments.asks_for_help(argv):
        from lab.cli import help  # noqa: A004, PLC0415  (a module, not the built-in)

        program = next((argument for argument in argv if not argument.startswith("-")), None)
        print(help.command_help(name, module, program))
        return
    arguments.call(name, module.command, argv)
