"""Which files a Python file names: by imports, and by texts that name a module or a program."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "lab", "scripts", "tests", "tools")

_RUN = re.compile(r"\brun ([\w-]+)")

Graph = Mapping[str, frozenset[str]]
"""The path of each Python file to the paths that it names."""


@dataclass(frozen=True)
class Source:
    """A Python file.

    Attributes:
        imports: The dotted names that it imports, in functions, too.
        texts: Its texts.
        prefixes: How its formatted texts begin.
        runs: What it runs: the `async` of `run("async")`, `("run", "async")` or "lab run async".
    """

    imports: frozenset[str]
    texts: frozenset[str]
    prefixes: frozenset[str]
    runs: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> Source:
        imports: set[str] = set()
        texts: set[str] = set()
        prefixes: set[str] = set()
        runs: set[str] = set()
        for node in _executed(ast.parse(text)):
            match node:
                case ast.Import(names=names):
                    imports |= {alias.name for alias in names}
                case ast.ImportFrom(module=str(module), names=names):
                    imports |= {module, *(f"{module}.{alias.name}" for alias in names)}
                case ast.Attribute(value=ast.Name(id="lab"), attr=verb):  # `lab.run("async")`
                    imports.add(f"lab.verbs.{verb}")
                case ast.Constant(value=str(value)):
                    texts.add(value)
                    runs |= {*_RUN.findall(value)}
                case ast.JoinedStr(values=[ast.Constant(value=str(value)), *_]):
                    prefixes.add(value)
                case ast.Call(func=ast.Attribute(attr="run"), args=[ast.Constant(value=name), *_]):
                    runs.add(str(name))
                case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Call(args=parts):
                    values = [getattr(part, "value", None) for part in parts]
                    runs |= {str(name) for word, name in pairwise(values) if word == "run"}
        return cls(*map(frozenset, (imports, texts, prefixes, runs)))


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all nodes in it, but what only a type checker reads."""
    yield node
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=others):
            children: Iterable[ast.AST] = others
        case _:
            children = ast.iter_child_nodes(node)
    for child in children:
        yield from _executed(child)


def read_sources(root: Path = ROOT) -> dict[str, Source]:
    return {
        path.relative_to(root).as_posix(): Source.parse(path.read_text("utf-8"))
        for folder in FOLDERS
        for path in (root / folder).rglob("*.py")
    }


def graph_of(sources: Mapping[str, Source]) -> dict[str, frozenset[str]]:
    modules = {module_of(path): path for path in sources}
    return {path: frozenset(_edges(path, each, modules)) for path, each in sources.items()}


def module_of(path: str) -> str:
    """The name of a module: `lab/runner/__init__.py` → `lab.runner`, `scripts/ddp.py` → …."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def reached(
    graph: Graph, roots: Iterable[str], enter: Callable[[str, str], bool] = lambda *_: True
) -> set[str]:
    """Return the paths that the roots can reach."""
    found: set[str] = set()
    left = list(roots)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += (other for other in graph[path] if enter(path, other))
    return found


def _edges(path: str, source: Source, modules: Mapping[str, str]) -> Iterator[str]:
    folder = PurePosixPath(path).parent.as_posix().replace("/", ".")
    # Programs import their neighbours as top-level modules.
    names = {*source.imports, *(f"{folder}.{name}" for name in source.imports)}
    for text in source.texts:
        names |= _named_by(text) & modules.keys()
    for prefix in source.prefixes:  # `f"lab.verbs.{python_name(name)}"`
        if prefix.endswith(".") and prefix[:-1] in modules:
            names |= {name for name in modules if name.startswith(prefix)}
    for name in names:
        yield from (modules[each] for each in _with_packages(name) if each in modules)


def _named_by(text: str) -> set[str]:
    """The modules that a text may name: `lab`, `lab.task.agent:main` or `mnist_async.py`."""
    name = text.partition(":")[0]
    program = PurePosixPath(name).stem if name.endswith(".py") else ""
    return {name, f"{name}.__main__", f"scripts.{program}"}


def _with_packages(name: str) -> Iterator[str]:
    """A module's name, and those of the packages that an import of it executes."""
    while name:
        yield name
        name = name.rpartition(".")[0]
