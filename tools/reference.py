"""Pages of the reference that follow from the code: of each command, and of the Python package.

`tools/docs_site.py` makes them when the site is built, so that they are never out of date.
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cached_property
from importlib import import_module
from os import environ
from types import FunctionType
from typing import Final
from unittest import mock

import lab
from lab.backends.names import backend_plugins
from lab.cli.help import command_help
from lab.cli.registry import COMMANDS, GROUPS
from lab.verbs import python_name
from lab.verbs.printing import Shown, Tabular

COMMAND_PAGES: Final = {name: f"reference/commands/{name}.md" for name in COMMANDS}
"""By command: its page in the site."""

PYTHON_PAGE: Final = "reference/python-api.md"
"""The page of the functions and types of `lab`."""

_WIDTH: Final = "80"
"""Characters in a line of the help: as many as a page shows."""


_RESULTS: Final = (
    "Each result has `.show()`, which prints it, and `.to_json()`; a notebook shows it as HTML."
    " The result of these functions is a table, and `.frame()` returns it as a pandas data frame:"
)


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
    groups = [
        {group: [{f"lab {name}": COMMAND_PAGES[name]} for name in names]}
        for group, names in GROUPS.items()
    ]
    return [{"Command line": groups}, {"Python API": PYTHON_PAGE}]


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
    parts += ["## Types", *map(_directive, types), "## Results", _RESULTS]
    rows = [f"| `lab.{name}` | `{kind.__name__}` |" for kind, name in tables().items()]
    parts += ["\n".join(["| function | table |", "| --- | --- |", *rows])]
    parts += [_directive(each) for each in results() if each not in types]
    return "\n\n".join(parts) + "\n"


def tables() -> dict[type, str]:
    """The results that are also data frames, each with the name of its function."""
    return {kind: name for kind, name in results().items() if issubclass(kind, Tabular)}


def results() -> dict[type, str]:
    """The types of the results of the functions, each with the name of its first function."""
    found: dict[type, str] = {}
    for name in lab.__all__:
        function = getattr(lab, name)
        for returned in str(getattr(function, "__annotations__", {}).get("return")).split(" | "):
            kind = getattr(import_module(function.__module__), returned, None)
            if isinstance(kind, type) and issubclass(kind, Shown) and kind is not Shown:
                found.setdefault(kind, name)
    return found


def _directive(member: object) -> str:
    """The documentation of a function or a type; of a result also its own methods."""
    line = f"::: {member.__module__}.{member.__qualname__}"  # type: ignore[attr-defined]
    if not (isinstance(member, type) and issubclass(member, Shown)):
        return line
    classes = [each for each in member.__mro__ if each.__module__.startswith("lab.")]
    shown = (property, cached_property, FunctionType)
    names = {
        name
        for each in classes
        for name, value in vars(each).items()
        if isinstance(value, shown) and not name.startswith("_")
    }
    listed = ", ".join(sorted(names - {"show", "to_json"}))
    options = f"\n    options:\n      inherited_members: true\n      members: [{listed}]"
    return line + options if listed else line  # without a name, all members would be shown


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
        if not isinstance(node, ast.ImportFrom):
            continue
        module = node.module or ""
        own = package and f"{module}.".startswith(f"{package}.")
        if module.startswith("lab.") and not own:
            yield from ((module, each.name) for each in node.names)
