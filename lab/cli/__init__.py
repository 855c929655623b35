"""The command line: check the words, call one command, turn errors into exit codes.

Nothing heavy is imported before a command is known: `lab --help` must answer at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from lab import __version__, signals
from lab.cli import arguments, catalogue, failures, help  # noqa: A004  (the module is named for it)
from lab.errors import InputError
from lab.task.text import suggestion


def main(argv: Sequence[str]) -> int:
    """Run one command.

    Args:
        argv: The words behind `lab`.

    Returns:
        The exit code: 0 it worked, 1 it failed, 2 wrong usage or input, 130 interrupted.
    """
    words, debug = _without_debug(argv)
    with signals.as_interrupt():
        return failures.exit_code_of(lambda: _dispatch(words), debug=debug)


def _without_debug(argv: Sequence[str]) -> tuple[list[str], bool]:
    """Take `--debug` out; what follows `--` belongs to the program and stays as it is."""
    words = list(argv)
    own = words[: words.index("--")] if "--" in words else words
    kept = [word for word in own if word != "--debug"]
    return kept + words[len(own) :], len(kept) < len(own)


def _dispatch(words: list[str]) -> None:
    if not words:
        print(help.short())
        return
    name, rest = words[0], words[1:]
    if name in {"-h", "--help", "help"} and not rest:
        print(help.full())
        return
    if name == "__complete":
        # Imported here: only a shell asks, at a press of Tab.
        from lab.cli.completion.answers import answer  # noqa: PLC0415

        print("\n".join(word for kind in rest for word in answer(kind)))
        return
    if name == "--version" and not rest:
        print(f"lab {__version__}")
        return
    if name == "help":
        name, rest = rest[0], ["--help", *rest[1:]]
    command = catalogue.COMMANDS.get(name)
    if command is None:
        near = suggestion(name, catalogue.COMMANDS)
        what = f"no option {name!r}" if name.startswith("-") else f"no command {name!r}"
        raise InputError(what, f"{near}see `lab --help`")
    function = _load(command)
    if arguments.asks_for_help(rest):
        words = [each for each in rest if not each.startswith("-")]
        print(help.of_command(command, function, words[0] if words else None))
        return
    arguments.call(command.name, function, rest)


def _load(command: catalogue.Command) -> Callable[..., None]:
    module = importlib.import_module(f"lab.cli.commands.{command.module}")
    function: Callable[..., None] = module.command
    return function
