"""Checks of a page: its links have targets, its commands are valid, its output is what is printed.

A block in no language of programs shows output, or a drawing. `assert_shows` compares the output of
a test with such a block; test_documents.py finds blocks that no test compares.
"""

from __future__ import annotations

import importlib
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.base.command_line import read_arguments
from lab.base.errors import InputError
from lab.cli.registry import COMMANDS
from lab.cluster.config import load_cluster
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.verbs import python_name

ROOT = Path(__file__).parents[2]

_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_SPAN = re.compile(r"`(lab [^`\n]+)`")
_LINE = re.compile(r"^ *(?:\$ )?((?:\w+=\S+ )*lab .+)$", re.MULTILINE)
_BREAK = re.compile(r"(?<!\n)\n(?!\n)")
_FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- ([\w-]+)")
_DRAWN = re.compile(r"[▶◀┐├]")
_RUN = re.compile(r"\d{8}-\d{4}-[\w-]+-[0-9a-f]{4}")
_BAR = re.compile(r"[─━╸╺▁▂▃▄▅▆▇█]")
_DEVICE = re.compile(r"(GPU|MIG)-[\w-]+…?")
_FIGURE = re.compile(r"\d[\d,.]*")
_ANY = "…"
_LANGUAGES = frozenset({"sh", "python", "toml", "yaml", "json", "dockerfile"})
_USERS_OWN = re.compile(r".*\bmy_\w+\.py$|[\w-]+=")
"""A program of the reader's in a command."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        line: The number of its first line in the page.
        language: The language after its fence, or "".
        text: Its lines.
        mark: The name of the comment before it, if a tool writes what follows, or "".
    """

    line: int
    language: str
    text: str
    mark: str

    @property
    def is_output(self) -> bool:
        """Whether it shows what a command prints."""
        return self.language not in _LANGUAGES and not _DRAWN.search(self.text)


def fenced(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in its order."""
    mark, opened, language, text = "", 0, "", list[str]()
    for number, line in enumerate((ROOT / page).read_text("utf-8").splitlines(), 1):
        fence = line.strip()
        if not opened and (found := _MARK.match(fence)):
            mark = "" if found[1] == "end" else found[1]
        elif not fence.startswith("```"):
            text.append(line)
        elif not opened:
            opened, language, text = number + 1, fence.removeprefix("```"), []
        else:
            yield Block(opened, language, textwrap.dedent("\n".join(text)), mark)
            opened = 0


def output(page: str, start: str) -> str:
    """The text of the only block of output in a page that begins with this text."""
    found = [each.text for each in fenced(page) if each.is_output and each.text.startswith(start)]
    assert len(found) == 1, f"{page}: {len(found)} blocks of output begin with {start!r}"
    return found[0]


def assert_shows(page: str, start: str, printed: str, *, figures: bool = True) -> None:
    """Assert that a page shows what is printed, in a block that begins with this text.

    Spaces, lines and bars need not agree. `…` in the page stands for any text. The names of runs
    and the UUIDs of GPUs may differ; numbers too, with `figures=False`. Lines of the page that
    begin with `$ ` are commands, which the caller has run in this order.
    """
    text = re.sub(r"^\$ .*$", _ANY, output(page, start), flags=re.MULTILINE)
    parts = _plain(text, figures=figures).split(_ANY)
    plain = _plain(printed, figures=figures)
    found = re.search(".*?".join(re.escape(part.strip()) for part in parts), plain)
    assert found, f"{page}:\n{text}\nprinted:\n{printed}"


def _plain(text: str, *, figures: bool) -> str:
    text = _DEVICE.sub(r"\1-UUID", _RUN.sub("RUN", text))
    if not figures:
        text = _FIGURE.sub("#", text)
    return " ".join(_BAR.sub("", text).split())


def dead_links(text: str, folder: Path) -> list[str]:
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
    module = importlib.import_module(f"lab.verbs.{python_name(name)}")
    return re.findall(r"^    (lab .+)$", module.__doc__ or "", re.MULTILINE)


def commands(text: str) -> list[str]:
    """Command lines in back quotes, but none with a `…`, and command lines in blocks."""
    lines = "\n".join(each[0] for each in _FENCE.finditer(text)).replace("\\\n", " ")
    prose = _BREAK.sub(" ", _FENCE.sub("", text))
    spans = [line for line in _SPAN.findall(prose) if _ANY not in line]
    return [*spans, *(line.replace(_ANY, "1") for line in _LINE.findall(lines))]


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
    name, *arguments = shlex.split(line[line.index("lab ") :], comments=True)[1:]
    if name.isupper() or (not arguments and name in COMMANDS):
        return  # a placeholder, or a command that the text only names
    if name == "run" and arguments[0].startswith("--") and len(arguments) == 1:
        arguments.append("async")  # the text only names the flag
    if name not in COMMANDS:
        yield f"{line}: no command {name}"
        return
    function = importlib.import_module(f"lab.verbs.{python_name(name)}").command
    try:
        read_arguments(name, function, arguments)
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
