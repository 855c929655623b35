"""Run the unit tests that belong to the current branch: `make quick`, after the linters.

The change is what differs from the main branch, and what is not committed. These tests run:

- the changed ones
- those that import a changed module themselves; if there are none, those that import from its
  package
- those that contain the path of another changed file, and for a page those of the documents

No other test runs. `make check` runs all short ones.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
UNIT: Final = "tests/unit"
PAGES: Final = f"{UNIT}/test_documents.py"
SOURCES: Final = ("benchmarks", "lab", "tests", "tools")


def main() -> int:
    """Run the tests; return pytest's exit code."""
    changed = changes()
    tests = sorted(tests_of(changed))
    number = len(list((ROOT / UNIT).glob("test_*.py")))
    print(f"quick: {len(changed)} changed files: {len(tests)} of {number} files of unit tests")
    code = _pytest(tests) if tests else 0
    print("quick: not run: all other tests, and the documents' site; `make check` runs more")
    return code


def changes() -> set[str]:
    """Return the paths that differ from the main branch, with those that are not committed."""
    names = _git("branch", "--all", "--format=%(refname:short)").split()
    main_branch = next((name for name in ("origin/main", "main") if name in names), "HEAD")
    base = _git("merge-base", "HEAD", main_branch).strip()
    known = _git("diff", "--name-only", "-z", base)
    new = _git("ls-files", "--others", "--exclude-standard", "-z")
    return {name for name in (known + new).split("\0") if name}


def tests_of(changed: Iterable[str], root: Path = ROOT) -> set[str]:
    """Return the paths of the unit tests that belong to changed files."""
    modules = {
        module_of(path.relative_to(root).as_posix())
        for folder in SOURCES
        for path in (root / folder).rglob("*.py")
    }
    texts = {
        path.relative_to(root).as_posix(): path.read_text("utf-8")
        for path in (root / UNIT).glob("test_*.py")
    }
    imported = {name: set(imports(text)) & modules for name, text in texts.items()}
    found: set[str] = set()
    for name in changed:
        if name in texts:
            found.add(name)
        elif name.endswith(".py") and name.startswith(SOURCES):
            found |= importers(module_of(name), imported)
        elif name.endswith(".md"):
            found.add(PAGES)
        else:
            found |= {test for test, text in texts.items() if name in text}
    return found


def module_of(path: str) -> str:
    """The name of a module: `lab/run/__init__.py` → `lab.run`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(source: str) -> Iterator[str]:
    """The names that a source imports, in functions, too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def importers(module: str, imported: Mapping[str, set[str]]) -> set[str]:
    """Return the tests that import a module; else those that import from its package."""
    if found := {test for test, names in imported.items() if module in names}:
        return found
    while "." in module:
        module = module.rpartition(".")[0]
        if "." in module and (
            found := {
                test
                for test, names in imported.items()
                if any(name.startswith(f"{module}.") for name in names)
            }
        ):
            return found
    return set()


def _pytest(tests: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses=2", "--dist=worksteal"]
    return subprocess.run([*command, *tests], cwd=ROOT, check=False).returncode


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
