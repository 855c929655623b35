"""The doctor on this very machine, with a real TensorFlow, and with a real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.doctor.gpus import TRIAL_LABEL
from tests.support import engine as engines
from tests.support.nvml.library import Driver

pytestmark = pytest.mark.tensorflow
NAMES = {
    *("version", "packages", "TensorFlow", "config", "MNIST", "runs directory"),
    *("state directory", "local environments", "CPUs", "memory", "room for runs"),
    *("room for state", "inotify", "open files", "threads", "namespaces", "ports", "addresses"),
    *("proxies", "command", "driver"),
}


def examine(where: Path, **variables: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report."""
    environ = {**os.environ, "PYTHONPATH": str(engines.ROOT), **variables}
    environ["LAB_STATE"] = str(where / "state")
    for name in ("LAB_RUNS_DIR", "LAB_LOCAL_NAMESPACES"):
        environ.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", "lab", "doctor", "--json"],
        cwd=where,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, json.loads(done.stdout)


def by_name(report: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each for each in report["findings"] if each["name"] != "further checks"}


def left_by_trials(environment: dict[str, str]) -> str:
    """Ids of the containers that a doctor has left, running or not."""
    command = ["docker", "ps", "--all", "--quiet", "--filter", f"label={TRIAL_LABEL}"]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_without_an_engine(tmp_path: Path) -> None:
    code, report = examine(tmp_path, DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    assert code == 0, report
    assert report["ok"]
    assert report["usable"]["local"]
    assert not report["usable"]["compose"]
    found = by_name(report)
    assert found.keys() >= NAMES
    assert found["TensorFlow"]["verdict"] == "ok"
    assert found["MNIST"]["verdict"] == "ok"
    assert not any(tmp_path.iterdir())


def test_with_an_engine(engine: engines.Engine, image: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_bytes((engines.ROOT / "clusters/laptop.yaml").read_bytes())
    code, report = examine(tmp_path, LAB_IMAGE=image)
    assert code == 0, report
    found = by_name(report)
    for name in ("engine", "compose", "buildx", "image", "disk", "address pools"):
        assert found[name]["verdict"] in {"ok", "warning"}, found[name]
    assert found["image"]["what"] == f"{image} exists"
    assert report["usable"]["compose"]
    assert left_by_trials(engine.environment) == ""
    assert [each.name for each in tmp_path.iterdir()] == ["cluster.yaml"]


def test_with_gpus_that_no_container_gets(
    engine: engines.Engine, image: str, driver: Callable[[str], Driver], tmp_path: Path
) -> None:
    """The driver has eight GPUs, and the image, which is for CPUs, has no nvidia-smi."""
    (tmp_path / "cluster.yaml").write_bytes((engines.ROOT / "cluster.yaml").read_bytes())
    code, report = examine(tmp_path, LAB_IMAGE=image, **driver("eight-h100").environment)
    found = by_name(report)
    assert found["GPUs"]["what"].startswith("8 NVIDIA H100")
    assert found["container toolkit"]["verdict"] == "failed"
    assert (code, report["ok"], report["usable"]["gpus"]) == (1, False, False)
    assert left_by_trials(engine.environment) == ""
