"""Mutants of one module, tested by mutmut in a copy of the working tree.

mutmut makes all mutants of a file at once and forks a process for each, which runs the tests that
call the changed function. It changes function bodies only: not module constants, class attributes,
or decorated functions such as properties.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutmut.configuration import reset_config
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name, orig_function_and_class_names_from_key

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = 300
"""How many mutants of a module are tested; all where it has no more."""

_UNFINISHED = {"not checked", "check was interrupted by user"}


@dataclass(frozen=True, slots=True)
class Module:
    """What is changed, and what must notice.

    Attributes:
        name: The module's name in `modules.toml`.
        sources: Glob patterns of its files, relative to the project.
        tests: Its test files, relative to the project.
    """

    name: str
    sources: Sequence[str]
    tests: Sequence[str]


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """A mutant, known by what it changes: its number would move with every edit above it.

    Attributes:
        function: `lab.run.summary.Summary.to_csv`.
        was: The changed lines as they are in the source.
        now: The same lines in the mutant.
    """

    function: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one module's mutants.

    Attributes:
        mutants: The number of the module's mutants.
        seed: The seed of the sample.
        sources_sha256: Digest of the module's files. While it stays, a name is the same mutant.
        status: mutmut's name of each tested mutant → its status in mutmut's terms (`killed`,
            `survived`, `no tests`, `timeout`).
        survivors: mutmut's name of each mutant that was neither killed nor too slow → the mutant.
    """

    mutants: int
    seed: int
    sources_sha256: str
    status: Mapping[str, str]
    survivors: Mapping[str, Mutant]


def copy_tree(target: Path) -> None:
    """Copy what git tracks or would track, as it is now, into an empty directory."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():  # a deleted file is still listed
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def sources_digest(module: Module, tree: Path) -> str:
    """SHA-256 of a module's files, one after the other."""
    files = _files(module, tree)
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def run_module(
    module: Module, tree: Path, seed: int, only: Collection[str] | None = None
) -> Outcome:
    """Test a module's mutants, or a random sample of `SAMPLE` of them.

    Args:
        module: The module.
        tree: A copy of the project; the mutants are written into its folder `mutants`.
        seed: The seed of the sample.
        only: Names of the mutants to test instead of a sample.

    Raises:
        CalledProcessError: mutmut could not run; the tests fail without any mutation, for example.
    """
    shutil.rmtree(tree / "mutants", ignore_errors=True)
    _configure(module, tree)
    files = {
        name: path.relative_to(tree) for path in _files(module, tree) for name in _names(tree, path)
    }
    names = sample(sorted(files), seed) if only is None else sorted(only)
    subprocess.run(
        [sys.executable, "-m", "mutmut", "run", "--max-children", "1", *names], cwd=tree, check=True
    )
    return outcome(module, tree, seed, files, names)


def outcome(
    module: Module, tree: Path, seed: int, files: Mapping[str, Path], names: Sequence[str]
) -> Outcome:
    """Read the outcome that mutmut left in a tree; `files` is each mutant's file."""
    status = _statuses(tree, set(files.values()), names)
    left = [name for name in names if status[name] not in {"killed", "timeout"}]
    with contextlib.chdir(tree):
        survivors = {name: _mutant(name, files[name]) for name in left}
    return Outcome(len(files), seed, sources_digest(module, tree), status, survivors)


def sample(names: Sequence[str], seed: int) -> list[str]:
    """All names, or `SAMPLE` of them at random."""
    if len(names) <= SAMPLE:
        return list(names)
    return sorted(random.Random(seed).sample(names, SAMPLE))  # noqa: S311  (no secret)


def _files(module: Module, tree: Path) -> list[Path]:
    return sorted(path for pattern in module.sources for path in tree.glob(pattern))


def _configure(module: Module, tree: Path) -> None:
    """Write mutmut's settings; property tests are left out, for their inputs are random."""
    rest = sorted(path.name for path in tree.iterdir() if path.name not in {"lab", "setup.cfg"})
    settings: dict[str, str | Sequence[str]] = {
        "source_paths": ["lab"],
        "only_mutate": module.sources,
        "also_copy": rest,
        "pytest_add_cli_args": ["-pno:cacheprovider", "-mnot hypothesis"],
        "pytest_add_cli_args_test_selection": module.tests,
        # No test has run in the process that is forked, so that no cache holds what a test made.
        "process_isolation": "forkserver",
        # A mutant has 15 times this, and 15 times its tests' own seconds: enough on a busy machine.
        "timeout_constant": "8",
    }
    lines = [f"{key} = {_setting(value)}\n" for key, value in settings.items()]
    (tree / "setup.cfg").write_text("[mutmut]\n" + "".join(lines), encoding="utf-8")


def _setting(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else "".join(f"\n    {each}" for each in value)


def _names(tree: Path, path: Path) -> list[str]:
    relative = path.relative_to(tree)
    with contextlib.chdir(tree):
        reset_config()
        made = mutate_file_contents(str(relative), path.read_text(encoding="utf-8"))
    return [get_mutant_name(relative, name) for name in made.mutant_names]


def _statuses(tree: Path, files: Iterable[Path], names: Iterable[str]) -> dict[str, str]:
    codes: dict[str, int | None] = {}
    for file in files:
        text = (tree / "mutants" / f"{file}.meta").read_text(encoding="utf-8")
        codes |= json.loads(text)["exit_code_by_key"]
    found = {name: status_by_exit_code[codes[name]] for name in names}
    if stopped := [name for name in names if found[name] in _UNFINISHED]:
        raise RuntimeError(f"mutmut stopped before {stopped[0]}; run it again")
    return found


def _mutant(name: str, path: Path) -> Mutant:
    function, owner = orig_function_and_class_names_from_key(name)
    module = name.rpartition(".")[0]
    lines = get_diff_for_mutant(name, path=path).splitlines()
    was = [line[1:].strip() for line in lines if line.startswith("-") and line[:3] != "---"]
    now = [line[1:].strip() for line in lines if line.startswith("+") and line[:3] != "+++"]
    qualified = ".".join(filter(None, (module, owner, function)))
    return Mutant(qualified, " ".join(was), " ".join(now))
