"""`lab` without its extras: what works, and the error of what does not."""

from __future__ import annotations

import os
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lab.base.shipped import MODULES
from tests.support import commands
from tests.support.commands import ROOT, Done

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

LOCKS = {
    extra: f"{ROOT}/requirements/{lock}.txt"
    for extra, lock in (
        ("report", "host"),
        ("simulation", "host"),
        ("tensorflow", "tensorflow"),
        ("class", "class"),
        ("notebooks", "notebooks"),
    )
}
"""The file with an extra, for a clone."""


def needed(requirements: list[str]) -> dict[str, metadata.Distribution]:
    found: dict[str, metadata.Distribution] = {}
    queue = [(each, "") for each in map(Requirement, requirements)]
    while queue:
        requirement, extra = queue.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        found[name] = metadata.distribution(name)
        extras = requirement.extras or {""}
        queue += [
            (each, extra)
            for each in map(Requirement, found[name].requires or ())
            for extra in extras
            if canonicalize_name(each.name) not in found
        ]
    return found


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of packages with the dependencies of `lab` alone."""
    folder = tmp_path_factory.mktemp("packages")
    for package in needed(PROJECT["dependencies"]).values():
        for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(str(package.locate_file(top)))
    return folder


def python(packages: Path, folder: Path, *arguments: str) -> Done:
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{packages}", "COLUMNS": "200"}
    own = {"HOME": str(folder), "LAB_STATE": str(folder / "state")}
    return commands.python("-S", *arguments, cwd=folder, env=variables | own)


def lab(packages: Path, folder: Path, arguments: str) -> Done:
    return python(packages, folder, "-m", "lab", *arguments.split())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").symlink_to(ROOT / "cluster.yaml")
    (tmp_path / "clusters").symlink_to(ROOT / "clusters")
    (tmp_path / "data").symlink_to(ROOT / "data")
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (tmp_path / "runs").symlink_to(ROOT / "notebooks/samples")
    (tmp_path / "class.yaml").write_text("version: 1\nname: c\nseats: [ada]\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ("render --gpus none --output -", "services:"),
        ("validate", "valid"),
        ("experiments", "async"),
        ("runs", "multiworker"),
        ("completion bash", "complete -"),
        ("gpus", "GPU"),
        ("doctor", "at the required versions"),
    ],
)
def test_the_dependencies_are_enough(
    packages: Path, project: Path, arguments: str, printed: str
) -> None:
    done = lab(packages, project, arguments)
    assert printed in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("simulate async", "simulation"),
        ("reproduce book-async", "report"),
        ("report last", "report"),
        ("class up", "class"),
        ("sweep async --over epochs=1,2", "report"),
        ("run async --backend local --gpus none", "tensorflow"),
    ],
)
def test_an_error_names_the_missing_extra(
    packages: Path, project: Path, arguments: str, extra: str
) -> None:
    done = lab(packages, project, arguments)
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"the extra `{extra}`" in last
    assert f"`{sys.executable} -m pip install --require-hashes -r {LOCKS[extra]}`" in last


def test_an_error_in_python_names_the_missing_extra(packages: Path, project: Path) -> None:
    done = python(packages, project, "-c", "import lab; lab.simulate('async')")
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last.startswith("lab.base.errors.LabError")
    assert "the extra `simulation`; install it with" in last


@pytest.mark.parametrize("extra", sorted(MODULES))
def test_each_module_belongs_to_a_package_of_its_extra(extra: str) -> None:
    declared = {Requirement(each).name for each in PROJECT["optional-dependencies"][extra]}
    owners = metadata.packages_distributions()
    for module in MODULES[extra]:
        assert declared & {canonicalize_name(each) for each in owners[module]}, module
