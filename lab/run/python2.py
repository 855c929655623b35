"""Programs in the syntax of Python 2, converted by fissix."""

from __future__ import annotations

import ast
import io
import re
import tempfile
import tokenize
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_LEFT_OUT: Final = frozenset({"import"})
"""Turns `import two_layers` into an import that only works inside of a package."""

_TRUE_DIVISION: Final = re.compile(r"^from __future__ import .*\bdivision\b", re.MULTILINE)
_LINE_END: Final = re.compile(rb"\r?\n|\r")


@dataclass(frozen=True, slots=True)
class Conversion:
    """A file that was converted.

    Attributes:
        source: Its text in Python 3, in the encoding of the original.
        changes: Kind of change to its count: `{"print": 3, "xrange": 1}`.
        divides: Whether it divides by `/`, which Python 2 does without a rest between whole
            numbers: that cannot be seen in the text, and is not converted.
    """

    source: bytes
    changes: Mapping[str, int]
    divides: bool

    def __str__(self) -> str:
        counts = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.changes.items()))
        warning = "; `/` now divides with a fraction, also between whole numbers"
        return counts + warning * self.divides


def convert(source: bytes, name: str) -> Conversion | None:
    """Convert a program.

    Args:
        source: A program that is no Python 3.
        name: Its path, for messages.

    Returns:
        The program in Python 3; None where fissix cannot convert it, or makes no Python 3 of it.
    """
    changes: Counter[str] = Counter()
    tool = _tool(changes)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = _LINE_END.sub(b"\n", source).decode(encoding)
        ended = text if text.endswith("\n") else f"{text}\n"
        made = str(tool.refactor_string(ended, name))
        converted = made.encode(encoding)
        compile(converted, name, "exec", dont_inherit=True)
        tree = ast.parse(converted, name)
    except Exception:  # noqa: BLE001  (50 fixers on any text: then the syntax error stands)
        return None
    return Conversion(converted, changes, _divides(tree) and not _TRUE_DIVISION.search(text))


def _tool(changes: Counter[str]) -> Any:  # noqa: ANN401  (fissix has no types)
    """A converter with all fixers, which counts what each of them changes."""
    # Imported here: few programs need it. It would keep its grammar in the user's cache.
    import fissix  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        fissix.CACHE_DIR = Path(folder)
        from fissix import refactor  # noqa: PLC0415

    names = refactor.get_fixers_from_package("fissix.fixes")
    tool = refactor.RefactoringTool(
        [name for name in names if name.rpartition(".fix_")[2] not in _LEFT_OUT]
    )
    for fixer in (*tool.pre_order, *tool.post_order):
        _count(fixer, changes)
    return tool


def _count(fixer: Any, changes: Counter[str]) -> None:  # noqa: ANN401
    """Let a fixer count the places that it changes: by a new node, or in the tree itself."""
    kind = type(fixer).__module__.rpartition(".fix_")[2]
    transform = fixer.transform

    def counted(node: Any, results: Any) -> Any:  # noqa: ANN401
        top = node
        while top.parent is not None:
            top = top.parent
        node_before, before = str(node), str(top)
        new = transform(node, results)
        if (new is not None and str(new) != node_before) or str(top) != before:
            changes[kind] += 1
        return new

    fixer.transform = counted


def _divides(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div)
        for node in ast.walk(tree)
    )
