"""The doctor on this very machine, with a real TensorFlow, and with a real engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import engine as engines
from tests.support.commands import run_command, start
from tests.support.nvml.library import Driver

pytestmark = pytest.mark.tensorflow


def examine(where: Path, **variables: str) -> dict[str, Any]:
    """The report; the exit code says whether something has failed."""
    process = start(where, "doctor", "--json", **variables)
    out, err = process.communicate(timeout=180)
    assert out, err
    report: dict[str, Any] = json.loads(out)
    assert process.returncode == int(not report["ok"])
    return report


def by_name(report: dict[str, Any]) -> dict[str, Any]:
    return {f"{each['area']}: {each['where']}": each for each in report["findings"]}


def containers_of(engine: engines.Engine) -> str:
    command = ["docker", "ps", "--all", "--quiet"]
    done = run_command(command, env=engine.environment, check=True)
    return done.stdout


def test_without_an_engine(tmp_path: Path) -> None:
    report = examine(tmp_path, DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    assert report["ok"], report
    assert report["usable"]["local"]
    assert not report["usable"]["compose"]
    found = by_name(report)
    assert found.keys() >= {"host: packages", "host: memory", "local: namespaces", "GPUs: driver"}
    assert found["local: TensorFlow"]["status"] == "ok"
    assert not any(tmp_path.iterdir())


def test_with_an_engine(engine: engines.Engine, image: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_bytes((engines.ROOT / "clusters/laptop.yaml").read_bytes())
    before = containers_of(engine)
    report = examine(tmp_path, LAB_IMAGE=image)
    assert report["ok"], report
    found = by_name(report)
    for name in ("available", "engine", "image"):
        assert found[f"compose: {name}"]["status"] == "ok", found[f"compose: {name}"]
    assert found["compose: image"]["what"] == "here"
    assert report["usable"]["compose"]
    assert containers_of(engine) == before
    assert [each.name for each in tmp_path.iterdir()] == ["cluster.yaml"]


def test_with_gpus_that_no_container_gets(
    engine: engines.Engine, image: str, driver: Callable[[str], Driver], tmp_path: Path
) -> None:
    """The driver has eight GPUs, and the engine has no container toolkit."""
    (tmp_path / "cluster.yaml").write_bytes((engines.ROOT / "cluster.yaml").read_bytes())
    report = examine(tmp_path, LAB_IMAGE=image, **driver("eight-h100").environment)
    found = by_name(report)
    assert found["GPUs: devices"]["what"].startswith("8 NVIDIA H100")
    assert found["GPUs by compose: container toolkit"]["status"] == "failed"
    assert (report["ok"], report["usable"]["gpus"]) == (False, False)
