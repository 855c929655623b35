"""Refuse words of the project's old private vocabulary in names, help and error messages.

    python tools/vocabulary.py [FILE …]

The words and their replacements stand in pyproject.toml, `[tool.vocabulary]`. `names` holds words
that no module, class, function, parameter, field or variable may contain (`bring_home` contains
`home`). `texts` holds patterns that no text for users may contain. A text for users is a string
with a space that is no docstring. `allowed` holds names that are part of the command line, of a
file format or of a library.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CHECKED: Final = ("lab",)

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True)
class Vocabulary:
    """What is refused.

    Attributes:
        names: Word to what to write instead, for names.
        texts: Pattern to what to write instead, for texts.
        allowed: Names that stay.
    """

    names: Mapping[str, str]
    texts: Mapping[re.Pattern[str], str]
    allowed: frozenset[str]

    @classmethod
    def read(cls, path: Path = ROOT / "pyproject.toml") -> Vocabulary:
        """Read it from a pyproject.toml."""
        table = tomllib.loads(path.read_text())["tool"]["vocabulary"]
        return cls(
            table["names"],
            {re.compile(rf"\b(?:{p})\b", re.IGNORECASE): use for p, use in table["texts"].items()},
            frozenset(table["allowed"]),
        )

    def faults(self, source: str, module: str = "") -> Iterator[tuple[int, str]]:
        """Line number and message of each refused word in a Python file.

        Args:
            source: The file's text.
            module: The module's name, which is checked too.

        Raises:
            SyntaxError: The text is no Python.
        """
        tree = ast.parse(source)
        docstrings = set(_docstrings(tree))
        for line, name in [(1, module), *_defined(tree)]:
            if name in self.allowed:
                continue
            for part in _PART.findall(name):
                if (use := self.names.get(part.lower())) is not None:
                    yield line, f"the name {name!r} contains {part.lower()!r}: write {use}"
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if " " not in node.value.strip() or id(node) in docstrings:
                continue
            for pattern, use in self.texts.items():
                if (found := pattern.search(node.value)) is not None:
                    yield node.lineno, f"the text contains {found[0]!r}: write {use}"


def _defined(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a file chooses itself, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str() as name):
                yield node.lineno, name


def _docstrings(tree: ast.AST) -> Iterator[int]:
    """Identities of the strings that stand alone as a statement: docstrings of all kinds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node.value)


def main(files: Iterable[str]) -> int:
    """Check files, or all of the project; 1 if a word is refused."""
    vocabulary = Vocabulary.read()
    paths = [Path(name) for name in files] or [
        path for name in CHECKED for path in sorted((ROOT / name).rglob("*.py"))
    ]
    count = 0
    for path in paths:
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for line, message in sorted(vocabulary.faults(path.read_text(), path.stem)):
            count += 1
            print(f"{shown}:{line}: {message}")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
