"""Pages of the reference that follow from the code: of each command, and of the Python package.

`tools/docs_site.py` makes them when the site is built, so that they are never out of date.
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import import_module
from os import environ
from typing import Final
from unittest import mock

import lab
from lab.backends.names import backend_plugins
from lab.cli.help import command_help
from lab.cli.registry import COMMANDS, GROUPS
from lab.verbs import python_name

COMMAND_PAGES: Final = {name: f"reference/commands/{name}.md" for name in COMMANDS}
"""By command: its page in the site."""

PYTHON_PAGE: Final = "reference/python-api.md"
"""The page of the functions and types of `lab`."""

_WIDTH: Final = "80"
"""Characters in a line of the help: as many as a page shows."""


class _Terminal(io.StringIO):
    """A stdout that is a terminal, to which the help fits its lines."""

    def isatty(self) -> bool:
        return True


def pages() -> dict[str, str]:
    """The Markdown of all pages, by their paths in the site."""
    commands = {COMMAND_PAGES[name]: command_page(name) for name in COMMANDS}
    return {**commands, PYTHON_PAGE: python_page()}


def navigation() -> list[object]:
    """The entries of the pages in the site's navigation: a section, and the page of Python."""
    names = [name for group in GROUPS.values() for name in group]
    return [
        {"Command line": [{f"lab {name}": COMMAND_PAGES[name]} for name in names]},
        {"Python API": PYTHON_PAGE},
    ]


def command_page(name: str) -> str:
    """What `lab NAME --help` prints, as a page."""
    with redirect_stdout(_Terminal()), mock.patch.dict(environ, {"COLUMNS": _WIDTH}):
        text = command_help(name, import_module(f"lab.verbs.{python_name(name)}"))
    return f"# lab {name}\n\n`lab {name} --help` prints this text.\n\n```text\n{text}\n```\n"


def python_page() -> str:
    """The functions and types of `lab`, as directives of mkdocstrings."""
    members = [getattr(lab, name) for name in lab.__all__]
    functions = [each for each in members if not isinstance(each, type)]
    types = [each for each in members if isinstance(each, type)]
    parts = ["# Python API", "`import lab` gives these names.", "## Functions"]
    parts += [_directive(each) for each in functions]
    parts += ["## Types", *(_directive(each) for each in types)]
    return "\n\n".join(parts) + "\n"


def _directive(member: object) -> str:
    return f"::: {member.__module__}.{member.__qualname__}"  # type: ignore[attr-defined]


def plugin_table(backend: str) -> str:
    """The names of lab that backends outside of it import, by module, as a table.

    Args:
        backend: The source of another backend beside those that lab has as plug-ins.
    """
    found = set(_imports(backend, ""))
    for plugin in backend_plugins().values():
        for path in plugin.folder().glob("*.py"):
            found |= set(_imports(path.read_text(encoding="utf-8"), plugin.entry.module))
    lines = ["| module | names |", "| --- | --- |"]
    for module in sorted({module for module, _ in found}):
        names = sorted(name for of, name in found if of == module)
        lines.append(f"| `{module}` | {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join(lines)


def _imports(source: str, package: str) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each import of lab, but not of the package itself."""
    for node in ast.walk(ast.parse(source)):
        module = (isinstance(node, ast.ImportFrom) and node.module) or ""
        own = package and f"{module}.".startswith(f"{package}.")
        if module.startswith("lab.") and not own:
            yield from ((module, each.name) for each in node.names)
