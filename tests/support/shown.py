"""Checks of a page: its links have targets, and its commands are valid."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from lab.cli.arguments import check
from lab.cli.registry import COMMANDS
from lab.config import load_cluster
from lab.errors import InputError
from lab.experiments.registry import EXPERIMENTS

ROOT = Path(__file__).parents[2]

_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_SPAN = re.compile(r"`(lab [^`\n]+)`")
_LINE = re.compile(r"^(lab .+)$", re.MULTILINE)
_BREAK = re.compile(r"(?<!\n)\n(?!\n)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_NOT_TYPED = re.compile(r"[…]")
_USERS_OWN = re.compile(r".*\bmy_\w+\.py$|[\w-]+=")
"""A program of the reader's in a command."""


def dead_links(text: str, folder: Path) -> list[str]:
    """Links of a page in this folder to files, or headings, that are not there."""
    return [
        target
        for target in _LINK.findall(text)
        if not (target[1:] in _anchors(text) if target[0] == "#" else _exists(target, folder))
    ]


def wrong_commands(text: str) -> list[str]:
    """Why which of the page's `lab …` would be refused, or could not begin."""
    return [fault for line in commands(text) for fault in _faults(line)]


def examples(name: str) -> list[str]:
    """The command lines that the help of a command shows as examples."""
    module = importlib.import_module(f"lab.cli.commands.{name}")
    return re.findall(r"^    (lab .+)$", module.__doc__ or "", re.MULTILINE)


def commands(text: str) -> list[str]:
    """Command lines in back quotes, and command lines in blocks; none with a `…` in it."""
    blocks = "\n".join(_FENCE.findall(text))
    prose = _BREAK.sub(" ", _FENCE.sub("", text))
    shown = [*_SPAN.findall(prose), *_LINE.findall(blocks)]
    return [line for line in shown if not _NOT_TYPED.search(line)]


def _exists(target: str, folder: Path) -> bool:
    if target.startswith("https://"):
        return True
    file, _, anchor = target.partition("#")
    path = (folder / file).resolve()
    if not path.is_file():
        return False
    return not anchor or anchor in _anchors(path.read_text("utf-8"))


def _anchors(text: str) -> set[str]:
    titles = _HEADING.findall(text)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def _faults(line: str) -> Iterator[str]:
    _, name, *arguments = shlex.split(line, comments=True)
    if name.isupper() or (not arguments and name in COMMANDS):
        return  # a placeholder, or a command that the text only names
    if name == "run" and arguments[0].startswith("--") and len(arguments) == 1:
        arguments.append("async")  # the text only names the flag
    if name not in COMMANDS:
        yield f"{line}: no command {name}"
        return
    function = importlib.import_module(f"lab.cli.commands.{name}").command
    try:
        check(name, function, arguments)
    except InputError as error:
        yield f"{line}: {error}"
    if "--cluster" in arguments:
        path = ROOT / arguments[arguments.index("--cluster") + 1]
        experiment = EXPERIMENTS.get(arguments[0])
        if not path.is_file():
            yield f"{line}: no {path.name}"
        elif experiment and set(load_cluster(path).jobs) != set(experiment.jobs):
            yield f"{line}: {path.name} has other jobs"
    known = (
        name != "run"
        or arguments[0].isupper()
        or arguments[0] in EXPERIMENTS
        or (ROOT / arguments[0]).is_file()
    )
    own = _USERS_OWN.match(arguments[0]) or {"--listing", "-m"}.intersection(arguments)
    if not known and not own:
        yield f"{line}: no experiment {arguments[0]}"
