"""The cost of a command, by its imports and its number of instructions; nothing is timed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from lab.config import parse_cluster
from lab.gpu import take_inventory
from lab.placement.place import place
from lab.render import render
from tests.support.commands import ROOT, environ

FOREIGN = {
    *("docker", "matplotlib", "numpy", "PIL", "pynvml", "pyroute2", "requests", "rich"),
    "tensorflow",
}
"""Packages that none of the commands below needs."""

OWN = {
    "lab.backends.compose",
    "lab.backends.local",
    "lab.gpu.verification",
    "lab.task.probes.gpu_probe",
}
"""Modules of `lab` that boot an environment and verify its GPUs: they have many imports."""

BEFORE_ANY_COMMAND = {
    "fire",
    "pydantic",
    "ruamel.yaml",
    "lab.config",
    "lab.task.protocol.experiments",
}


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], FOREIGN | OWN | BEFORE_ANY_COMMAND),
        ([], FOREIGN | OWN | BEFORE_ANY_COMMAND),
        (["render", "--gpus", "index", "--output", "-"], FOREIGN | OWN | {"lab.config.schema"}),
        (["render", "--gpus", "index", "--check"], FOREIGN | OWN | {"lab.config.schema"}),
        (["predict", "--help"], {"numpy", "PIL", "matplotlib", "tensorflow"}),
        (["validate"], FOREIGN | OWN | {"lab.config.schema"}),
    ],
    ids=["help", "nothing", "render", "check", "predict", "validate"],
)
def test_a_command_imports_nothing_that_it_does_not_need(
    arguments: list[str], unwanted: set[str], tmp_path: Path
) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("cluster.yaml", "docker-compose.yml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    code = (
        f"import sys; from lab.cli import main; code = main({arguments!r});"
        f"found = sorted({unwanted!r} & set(sys.modules));"
        "sys.exit(f'code {code}, imported: {found}' if code or found else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def many(nodes: int) -> dict[str, Any]:
    """A config of a ps and seven workers with a GPU each, on each of many nodes."""
    names = [f"tf{number}" for number in range(nodes)]
    return {
        "version": 1,
        "name": "many",
        "nodes": {name: {"gpus": 7} for name in names},
        "jobs": {
            "ps": {"on": names},
            "worker": {"on": [name for name in names for _ in range(7)], "gpus": 1},
        },
    }


def rendered(config: dict[str, Any], mode: str) -> Callable[[], object]:
    """All steps from a config's bytes to the compose file's text."""
    data = json.dumps(config).encode()

    def render_it() -> str:
        cluster = parse_cluster(data, "cluster.yaml")
        return render(place(cluster, take_inventory(mode, cluster)))

    return render_it


def instructions(action: Callable[[], object]) -> int:
    """How many instructions of Python's something takes: the same number every time."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def growth(make: Callable[[int], Callable[[], object]], size: int) -> float:
    """By how much more the second doubling adds than the first: 2 is linear, 4 quadratic."""
    make(4 * size)()  # caches between calls are filled for all three
    first, second, third = (instructions(make(factor * size)) for factor in (1, 2, 4))
    return (third - second) / (second - first)


@pytest.mark.parametrize("mode", ["index", "none"])
def test_rendering_grows_with_the_config(mode: str) -> None:
    assert growth(lambda nodes: rendered(many(nodes), mode), 12) < 2.005
