"""`--explain` and `--strict`: the lines about a plan, and the refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.base.units import GIB
from lab.cluster.gpu import Inventory, Process
from tests.golden.boxes import box, uuid_of, wired
from tests.support.cli import Host

CLUSTER = """\
version: 1
name: mnist
nodes: {tf1: {}, tf2: {gpus: 2}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2]}}
"""


def busy() -> Inventory:
    whole = wired((0, 0, 1, 1), {(0, 1): 18})
    first, *others = whole.gpus
    used = replace(first, processes=(Process(4711, "pyth\x1bon", 3 * GIB),))
    return replace(whole, gpus=(used, *others))


def with_gpus(*capabilities: str) -> Inventory:
    host = box(len(capabilities))
    gpus = zip(host.gpus, capabilities, strict=True)
    some = tuple(replace(gpu, compute_capability=each) for gpu, each in gpus)
    return replace(host, gpus=some)


NO_DRIVER = ("no NVIDIA driver answers: CPUs only", "no CPUs")
HOSTS = {
    "busy": busy(),
    "no driver": Inventory("none", (), 8, GIB, NO_DRIVER),
    "one CPU": box(2, cpus=1),
    "no GPU and one CPU": Inventory("none", (), 1, GIB),
    "an old and a new GPU": with_gpus("5.2", "9.0"),
    "two old GPUs": with_gpus("5.2", "5.0"),
    "limits": with_gpus("6.0", "12.0"),
    "an old GPU without a task": with_gpus("8.0", "8.6", "3.7"),
    "CPUs": Inventory("none", (), 8, GIB),
}


@pytest.fixture
def project(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A project without an environment; `put` replaces its host."""
    host.backend.environment = None
    Path("cluster.yaml").write_text(CLUSTER)
    monkeypatch.delenv("LAB_TENSORFLOW", raising=False)
    return host


def put(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    for user in ("lab.cluster.placement.place",):
        monkeypatch.setattr(f"{user}.take_inventory", lambda mode, cluster: inventory)


@pytest.mark.parametrize(
    ("name", "line", "code"),
    [
        ("busy", "render --explain", 0),
        ("busy", "render", 0),
        ("busy", "render --strict", 1),
        ("no driver", "render", 0),
        ("no driver", "render --strict", 1),
        ("one CPU", "render --strict", 1),
        ("no GPU and one CPU", "render --strict", 1),
        ("an old and a new GPU", "render", 0),
        ("an old and a new GPU", "render --strict", 1),
        ("two old GPUs", "render --strict", 1),
        ("two old GPUs", "render --strict --framework tensorflow-2.15", 0),
        ("limits", "render --strict", 0),
        ("an old GPU without a task", "render --strict", 0),
        ("CPUs", "render --strict --gpus none", 0),
    ],
)
def test_lines_about_a_plan(
    project: Host,
    name: str,
    line: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    put(HOSTS[name], monkeypatch)
    before = sorted(project.folder.rglob("*"))
    out, err = project.lab(line, code)
    assert (out, "\x1b" in err) == ("", False)
    assert err.splitlines() == snapshot
    if code:
        assert "error: refused by --strict: " in err.splitlines()[-1]
        assert sorted(project.folder.rglob("*")) == before
    else:
        assert (uuid_of(1) in Path("compose.yaml").read_text()) is (
            bool(HOSTS[name].gpus) and "none" not in line
        )


def test_an_unknown_tensorflow_is_not_judged(
    project: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(HOSTS["two old GPUs"], monkeypatch)
    monkeypatch.setenv("LAB_TENSORFLOW", "tensorflow[and-cuda]==2.18.*")
    assert project.lab("render --strict")[1].startswith("wrote ")


def test_a_stale_file_does_not_depend_on_host_usage(
    project: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(HOSTS["busy"], monkeypatch)
    project.lab("render")
    assert project.lab("render --check")[1] == "compose.yaml is up to date\n"
    for word in ("--strict", "--explain"):
        error = f"--check only compares, so {word} has no effect; leave out {word}"
        assert project.error(f"render --check {word}") == error
