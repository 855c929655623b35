"""What each group depends on, and the digest over it.

The command line and the agent reach most of `lab/`. What they reach without the files that belong
to a group is common to all groups: the tests of every landing cover it. The inputs of a group are
its tests with all that they import, the rest of `lab/` and `scripts/` that they reach, and files
that are no Python, by their names in the tests and by the patterns of the group.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from lab.protocol.experiments.registry import EXPERIMENTS
from tests.groups.group import E2E, GROUPS, Group, group_of_file, owned
from tests.groups.imports import ROOT, Graph, Source, graph_of, reached, read_sources

ENTRIES: Final = ("lab/__main__.py", "lab/task/agent/__main__.py")
ENVIRONMENT: Final = "requirements/dev.txt"
"""The tests of every group run with these packages."""


@dataclass(frozen=True)
class Project:
    """The files of the project, and which of them reach which."""

    root: Path
    files: frozenset[str]
    sources: Mapping[str, Source]

    @classmethod
    def read(cls, root: Path = ROOT) -> Project:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
        )
        files = frozenset(name for name in listed.stdout.split("\0") if (root / name).is_file())
        sources = read_sources(root)
        return cls(root, files, {path: sources[path] for path in sources.keys() & files})

    @cached_property
    def graph(self) -> Graph:
        return graph_of(self.sources)

    @cached_property
    def common(self) -> set[str]:
        """What the command line, the agent and the landing's own end-to-end tests reach."""
        own_tests = {
            path
            for path in self.files
            if path.startswith(f"{E2E}/test_") and not group_of_file(path)
        }
        return self._reached({*ENTRIES, *own_tests}, set().union(*self._owned.values()))

    @cached_property
    def inputs(self) -> dict[str, set[str]]:
        return {name: self._inputs(group) for name, group in GROUPS.items()}

    @cached_property
    def contents(self) -> dict[str, str]:
        return {
            path: hashlib.sha256((self.root / path).read_bytes()).hexdigest() for path in self.files
        }

    def digest(self, group: Group, contents: Mapping[str, str]) -> str:
        parts = [group.command, group.tests, group.shares]
        inputs = [(path, contents[path]) for path in sorted(self.inputs[group.name])]
        return hashlib.sha256(json.dumps([*parts, *inputs]).encode()).hexdigest()

    def unreached(self, tests: Iterable[str]) -> set[str]:
        """Return the modules and programs that neither these tests nor a group reaches."""
        found = reached(self.graph, [*tests, *ENTRIES])
        found |= set().union(*self.inputs.values())
        return {path for path in self.graph if path.startswith(("lab/", "scripts/"))} - found

    def _inputs(self, group: Group) -> set[str]:
        own = self._owned[group.name]
        tests = {path for path in self.files if owned(path, group.tests + group.shares)}
        others = set().union(*self._owned.values()) - own
        python = {path for path in tests | own | {"tests/conftest.py"} if path in self.graph}
        found = self._reached({*ENTRIES, *python}, others)
        code = {path for path in found if path.startswith(("lab/", "scripts/"))} - self.common
        around = {path for path in found if path.startswith(("tests/", "tools/"))}
        around = {path for path in around if not path.startswith("tests/groups/")}
        named = {text for path in around for text in self.sources[path].texts} & self.files
        wanted = {path for path in self.files if owned(path, group.files)}
        return code | around | tests | own | wanted | (named - self.graph.keys()) | {ENVIRONMENT}

    @cached_property
    def _owned(self) -> dict[str, set[str]]:
        """The files of `lab/` and `scripts/` that belong to each group alone."""
        programs = {path for path in self.graph if path.startswith("scripts/")}
        found: dict[str, set[str]] = {}
        for name, group in GROUPS.items():
            found[name] = {path for path in self.files if owned(path, group.owns)}
            found[name] |= {
                path for path in programs if not self._packages(path).isdisjoint(group.packages)
            }
        return found

    def _packages(self, program: str) -> set[str]:
        parts = reached(self.graph, [program], lambda _, to: to.startswith("scripts/"))
        names = (name for path in parts for name in self.sources[path].imports)
        return {name.partition(".")[0] for name in names}

    def _reached(self, roots: set[str], cut: set[str]) -> set[str]:
        """What these files reach; cut modules only by a test that imports them itself.

        The table of experiments names all programs; only the tests that run a program reach it.
        """

        def enter(path: str, to: str) -> bool:
            program = to.startswith("scripts/")
            if PurePosixPath(path).name.startswith("test_") and not program:
                return True
            return to not in cut and not (program and path.startswith("lab/"))

        found = reached(self.graph, roots, enter)
        programs = {
            f"scripts/{EXPERIMENTS[name].program}"
            for path in found
            if PurePosixPath(path).name.startswith("test_")
            for name in self.sources[path].runs & EXPERIMENTS.keys()
        }
        return reached(self.graph, found | (programs - cut), enter)
