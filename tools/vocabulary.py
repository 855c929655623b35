"""Refuse words of the project's old private vocabulary in names, messages, comments and documents.

    python tools/vocabulary.py [FILE …]

The words and their replacements are in pyproject.toml, `[tool.vocabulary]`. `names` has words that
no module, class, function, parameter, field or variable may contain (`bring_home` contains `home`).
`texts` has patterns for texts: messages (strings with a space), docstrings, comments, and Markdown
without its code. `allowed` has names that are part of the command line, of a file format or of a
library. `not_checked` has pages that are generated, or that quote others.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CODE: Final = ("lab/**/*.py",)
"""Files whose names are checked, and their texts."""

TEXTS: Final = (
    *("*.md", "docs/**/*.md", "notebooks/*.md", "notebooks/*.py"),
    *("scripts/*.py", "tools/**/*.py", "benchmarks/*.py"),
)
"""Files whose texts are checked."""

_CODE: Final = re.compile(r"`[^`]*`|\]\([^)]*\)")
"""Code in a text, and the target of a link."""

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True)
class Vocabulary:
    """What is refused.

    Attributes:
        names: Word to what to write instead, for names.
        texts: Pattern to what to write instead, for texts.
        allowed: Names that stay.
        not_checked: Files that are left out.
    """

    names: Mapping[str, str]
    texts: Mapping[re.Pattern[str], str]
    allowed: frozenset[str]
    not_checked: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path = ROOT / "pyproject.toml") -> Vocabulary:
        """Read it from a pyproject.toml."""
        table = tomllib.loads(path.read_text())["tool"]["vocabulary"]
        return cls(
            table["names"],
            {re.compile(rf"\b(?:{p})\b", re.IGNORECASE): use for p, use in table["texts"].items()},
            frozenset(table["allowed"]),
            tuple(table["not_checked"]),
        )

    def files(self) -> list[Path]:
        """The project's files that are checked."""
        found = {path for pattern in (*CODE, *TEXTS) for path in ROOT.glob(pattern)}
        left_out = {path for pattern in self.not_checked for path in ROOT.glob(pattern)}
        return sorted(found - left_out)

    def check(self, path: Path) -> list[tuple[int, str]]:
        """Line number and message of each refused word in a file, in order of lines."""
        source = path.read_text("utf-8")
        if path.suffix == ".md":
            return sorted(self.refused(prose(source)))
        names = any(path.match(pattern) for pattern in ("lab/**/*.py", "lab/*.py"))
        return sorted(
            [*(self.names_in(source, path.stem) if names else ()), *self.refused(texts(source))]
        )

    def names_in(self, source: str, module: str = "") -> Iterator[tuple[int, str]]:
        """Line number and message of each refused word in the names of a Python file.

        Args:
            source: The file's text.
            module: The module's name, which is checked too.

        Raises:
            SyntaxError: The text is no Python.
        """
        for line, name in [(1, module), *_defined(ast.parse(source))]:
            if name in self.allowed:
                continue
            for part in _PART.findall(name):
                if (use := self.names.get(part.lower())) is not None:
                    yield line, f"the name {name!r} contains {part.lower()!r}: write {use}"

    def refused(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """Line number and message of each refused word in texts.

        Args:
            lines: Line number and text.
        """
        keys = re.compile(rf"(?:^\s+|--)(?:{'|'.join(sorted(self.allowed))})\b")
        for line, text in ((line, keys.sub("", text)) for line, text in lines):
            for pattern, use in self.texts.items():
                if (found := pattern.search(text)) is not None:
                    yield line, f"the text contains {found[0]!r}: write {use}"


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Line number and text of each message, docstring and comment of a Python file.

    Raises:
        SyntaxError: The text is no Python.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, line in enumerate(node.value.split("\n")):
                yield node.lineno + offset, _CODE.sub("", line)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], _CODE.sub("", token.string)


def prose(markdown: str) -> Iterator[tuple[int, str]]:
    """Line number and text of each line of Markdown that is no code."""
    fenced = False
    for number, line in enumerate(markdown.splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced:
            yield number, _CODE.sub("", line)


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


def main(files: Iterable[str]) -> int:
    """Check files, or all of the project; 1 if a word is refused."""
    vocabulary = Vocabulary.read()
    count = 0
    for path in [Path(name) for name in files] or vocabulary.files():
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for line, message in vocabulary.check(path):
            count += 1
            print(f"{shown}:{line}: {message}")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
