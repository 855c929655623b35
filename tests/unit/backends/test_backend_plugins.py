"""Backends of other packages: named, used and disabled, and one line for each that is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.backends.names import backend_names, capabilities, known
from lab.backends.registry import backend_named, backends
from lab.backends.selection import choose
from lab.base.errors import LabError
from lab.cluster.config import parse_cluster
from tests.support.cli import CLUSTER, Cli
from tests.support.commands import python
from tests.support.packages import Install

FLEET = """
from lab.backends.base import Backend
from lab.backends.names import Capabilities
from lab.backends.options import choice

OPTIONS = (choice("sail", "what moves it", "no", "yes"),)
CAPABILITIES = Capabilities("fleet:Barge", "barges", options=OPTIONS)

class Barge(Backend):
    name = "barge"
    def boot(self, plan, *, root): raise NotImplementedError
    def projects(self): return []
    def find_any(self, project): return None
"""
TOLD = "uninstall or update the package; LAB_PLUGINS=none disables it"


def test_a_backend_of_a_package_is_one_like_the_others(install: Install, cli: Cli) -> None:
    install("fleet", {"backends": "barge = fleet:CAPABILITIES"}, {"fleet/__init__.py": FLEET})
    assert backend_names()[-1] == "barge"
    assert capabilities("barge").tasks == "barges"
    assert backend_named("barge", {"sail": "yes"}).options == {"sail": "yes"}
    lines = cli("backends").out.splitlines()
    at = lines.index("barge: can be used here")
    assert lines[at + 1 : at + 4] == [
        "  from fleet 1.2",
        "  barges: GPUs of this host, network faults",
        "  -o sail=no|yes: what moves it; default: no",
    ]
    found = {each["name"]: each["origin"] for each in json.loads(cli("backends", "--json").out)}
    assert (found["barge"], found["slurm"], found["local"]) == ("fleet 1.2", "", "")


def test_help_and_the_usual_target_look_for_no_package(
    install: Install, cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("fleet", {"backends": "barge = fleet:CAPABILITIES"}, {"fleet/__init__.py": FLEET})
    looked: list[str] = []
    monkeypatch.setattr("lab.base.plugins.entry_points", lambda group: looked.append(group) or [])
    monkeypatch.chdir(project)
    cli("--help")
    cli("render", "--gpus", "none", "--output", "-")
    cli("run", "async", "--backend", "local", "--epochs", "0", code=2)
    assert looked == []
    cli("backends")
    assert looked == ["gpulab.backends"]


def test_capabilities_are_known_without_the_backends() -> None:
    code = (
        "import sys; from lab.backends.names import known;"
        " print(known()['kubernetes'].extra, known()['slurm'].options[0].usage);"
        " print([name for name in sys.modules if name.endswith('.backend')])"
    )
    assert python("-c", code).stdout.splitlines() == ["kubernetes time=TIME", "[]"]


def test_other_packages_can_be_disabled_but_not_lab(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("fleet", {"backends": "barge = fleet:CAPABILITIES"}, {"fleet/__init__.py": FLEET})
    monkeypatch.setenv("LAB_PLUGINS", "none")
    assert [*known()] == ["compose", "local", "class", "slurm", "kubernetes"]


@pytest.mark.parametrize(
    ("point", "source", "why"),
    [
        ("barge = fleet:LOST", FLEET, "AttributeError: module 'fleet' has no attribute 'LOST'"),
        ("barge = fleet:CAPABILITIES", "raise SystemExit(0)", "SystemExit: 0"),
        ("barge = a b:c", FLEET, "a b:c is not module:name"),
        ("barge = lost_package:C", FLEET, "ModuleNotFoundError: No module named 'lost_package'"),
        (
            "barge = fleet:Barge",
            FLEET,
            "it is not an instance of `lab.backends.names.Capabilities`",
        ),
        ("local = fleet:CAPABILITIES", FLEET, "lab has one of this name"),
        ("auto = fleet:CAPABILITIES", FLEET, "lab has one of this name"),
        ("slurm = fleet:CAPABILITIES", FLEET, "gpulab 0.2.0 has one of this name"),
        ("../x = fleet:CAPABILITIES", FLEET, "its name may only have a-z, 0-9 and hyphens"),
    ],
)
def test_a_broken_one_is_left_out_with_one_line(
    install: Install, cli: Cli, point: str, source: str, why: str
) -> None:
    install("fleet", {"backends": point}, {"fleet/__init__.py": source})
    printed = cli("backends", "--json")
    name = point.partition(" ")[0]
    assert f"plug-in '{name}' of fleet 1.2 cannot be used: {why}; {TOLD}\n" == printed.err
    assert [each["name"] for each in json.loads(printed.out)] == [*known()]
    assert len(known()) == 5


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("boot", "start"), "fleet:Barge has no boot"),
        (('name = "barge"', 'name = "raft"'), "fleet:Barge is not a backend named barge"),
        (("fleet:Barge", "fleet:Lost"), "AttributeError: module 'fleet' has no attribute 'Lost'"),
        (("fleet:Barge", "fleet"), "TypeError: 'module' object is not callable"),
        (("def boot", "def __init__(self, own): {}['x']\n    def boot"), "KeyError: 'x'"),
    ],
)
def test_a_broken_class_disables_only_itself(
    install: Install, cli: Cli, change: tuple[str, str], why: str
) -> None:
    source = FLEET.replace(*change)
    install("fleet", {"backends": "barge = fleet:CAPABILITIES"}, {"fleet/__init__.py": source})
    line = f"plug-in 'barge' of fleet 1.2 cannot be used: {why}; {TOLD}"
    with pytest.raises(LabError) as caught:
        backend_named("barge")
    assert str(caught.value) == line
    printed = cli("backends", "--json")
    assert printed.err == f"{line}\n"
    assert "barge" not in {each["name"] for each in json.loads(printed.out)}
    assert {each.name for each in backends()} == known().keys() - {"barge"}


def test_a_backend_that_cannot_say_whether_it_can_be_used_cannot(
    install: Install, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path))
    source = f"{FLEET}\n    def unavailable_reason(self): raise KeyError('x')\n"
    install("fleet", {"backends": "barge = fleet:CAPABILITIES"}, {"fleet/__init__.py": source})
    why = "cannot be used here: KeyError: 'x'; update its package"
    assert f"barge: {why}" in cli("backends").out
    assert "no environment is up" in cli("ps").err


def test_auto_never_chooses_one(install: Install, tmp_path: Path) -> None:
    install("fleet", {"backends": "barge = fleet:CAPABILITIES"}, {"fleet/__init__.py": FLEET})
    plan = (
        backend_named("local")
        .plan(parse_cluster(CLUSTER.encode(), "x.yaml"), "none", runtime="jax")
        .plan
    )
    with pytest.raises(LabError, match="backend barge: request it with `--backend barge`"):
        choose("auto", plan, tmp_path, [backend_named("barge")])
    assert choose("barge", plan, tmp_path, [backend_named("barge")])[0].name == "barge"


def test_an_unknown_backend_is_refused_with_the_known_ones(install: Install, cli: Cli) -> None:
    install("fleet", {"backends": "barge = fleet:CAPABILITIES"}, {"fleet/__init__.py": FLEET})
    printed = cli("run", "async", "--backend", "bark", code=2)
    assert "'bark' is not auto, compose, local, class, slurm, kubernetes or barge" in printed.err
