"""The cost of a command, by its imports; nothing is timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import ROOT, environ, python

FOREIGN = {
    *("docker", "matplotlib", "numpy", "pynvml", "pyroute2", "requests", "rich"),
    "tensorflow",
}
"""Packages that none of the commands below needs."""

OWN = {
    "lab.backends.boot",
    "lab.backends.compose.boot",
    "lab.backends.compose.environment",
    "lab.backends.engine.client",
    "lab.backends.local.backend",
    "lab.cluster.gpu.verification",
    "lab.task.node.gpu_probe",
}
"""Modules of `lab` that boot an environment and verify its GPUs: they have many imports."""

BEFORE_ANY_COMMAND = {
    "fire",
    "pydantic",
    "ruamel.yaml",
    "lab.cluster.config",
    "lab.protocol.experiments.registry",
}

ONLY_WITH_GPUS_OR_RUNS = {
    "lab.protocol.frameworks",
    "lab.cluster.gpu.driver",
    "lab.cluster.gpu.nvml",
    "lab.cluster.gpu.support",
    "lab.cluster.placement.gpu_selection",
    "lab.protocol.volume",
}


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], FOREIGN | OWN | BEFORE_ANY_COMMAND),
        ([], FOREIGN | OWN | BEFORE_ANY_COMMAND),
        (
            ["render", "--gpus", "index", "--output", "-"],
            FOREIGN | OWN | {"lab.cluster.config.schema"},
        ),
        (["render", "--gpus", "none", "--output", "-"], FOREIGN | OWN | ONLY_WITH_GPUS_OR_RUNS),
        (["render", "--gpus", "index", "--check"], FOREIGN | OWN | {"lab.cluster.config.schema"}),
        (["validate"], FOREIGN | OWN | {"lab.cluster.config.schema"}),
        (["__complete", ""], FOREIGN | OWN | {"fire", "pydantic"}),
        (["__complete", "show", ""], {"fire", "numpy", "matplotlib", "docker", "tensorflow"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_nothing_that_it_does_not_need(
    arguments: list[str], unwanted: set[str], tmp_path: Path
) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("cluster.yaml", "docker-compose.yml"):
        text = (ROOT / name).read_text()
        (tmp_path / name).write_text(text.replace("context: .\n", "context: ./.lab/image\n"))
    code = (
        f"import sys; from lab.cli import main; code = main({arguments!r});"
        f"found = sorted({unwanted!r} & set(sys.modules));"
        "sys.exit(f'code {code}, imported: {found}' if code or found else 0)"
    )
    done = python("-c", code, cwd=tmp_path, env=environ(tmp_path))
    assert done.returncode == 0, done.stderr
