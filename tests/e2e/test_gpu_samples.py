"""GPU telemetry through the commands, on a host whose driver is the tests' own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import lab
from tests.support.nvml.box import Box, load
from tests.support.nvml.library import Driver

NAME = "lab-e2e-telemetry"
CLUSTER = f"""\
version: 1
name: {NAME}
nodes: {{tf1: {{}}, tf2: {{gpus: 2}}, tf3: {{gpus: 1}}}}
jobs: {{ps: {{on: [tf1]}}, worker: {{on: [tf2, tf3]}}}}
"""

# Trains from the second sample to the fourth, however long these take.
SAMPLED = """\
import argparse, os, signal, sys, time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--runs")
runs = parser.parse_args().runs
if os.environ["LAB_TASK"] == "ps-0":
    signal.pause()
samples = Path(runs) / Path(os.environ["LAB_RUN_DIR"]).name / "gpu.jsonl"
deadline = time.monotonic() + 300
for step, moments in ((100, 2), (200, 4)):
    while not samples.exists() or len(samples.read_text().splitlines()) < 3 * moments:
        assert time.monotonic() < deadline, "no samples"
        time.sleep(0.05)
    print(f"After  {step} training steps (  {step} global steps), "
          "loss on training batch is  0.388676.  (  0.002 sec/batch)", flush=True)
"""


def busy_box() -> Box:
    """Eight GPUs, the first of them used by 90 %, each further one by 10 points less."""
    host = load("eight-h100")
    gpus = [
        card.model_copy(update={"utilisation_percent": 90 - 10 * index, "used_mib": 1024})
        for index, card in enumerate(host.cards)
    ]
    return host.model_copy(update={"cards": tuple(gpus)})


@pytest.fixture(scope="module")
def box(driver: Callable[[Box], Driver]) -> dict[str, str]:
    return dict(driver(busy_box()).environment)


@pytest.fixture(scope="module")
def project(box: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("telemetry")
    for name in ("scripts", "data"):
        (path / name).mkdir()
    (path / "cluster.yaml").write_text(CLUSTER)
    (path / "sampled.py").write_text(SAMPLED)
    lab(path, "up", "--backend", "local", "--gpus", "uuid", **box)
    yield path
    lab(path, "down", "--yes", "--discard", **box)


def samples(project: Path, run_id: str) -> list[dict[str, Any]]:
    text = (project / "runs" / run_id / "gpu.jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_that_is_followed_is_sampled(project: Path, box: dict[str, str]) -> None:
    run = ("run", "sampled.py", "--json", "--", "--runs", str(project / "runs"))
    out, err = lab(project, *run, **box)
    summary = json.loads(out.splitlines()[-1])
    assert summary["state"] == "succeeded"
    ps, first, second = summary["tasks"]
    assert ps["gpu_utilisation"] is None
    assert len(first["gpus"]) == 2
    # Of two neighbours the lower one is busier by ten points; the mean is between them.
    gpus = {card.uuid: card for card in busy_box().cards}
    for task in (first, second):
        held = [gpus[gpu] for gpu in task["gpus"]]
        percent = sum(card.utilisation_percent or 0 for card in held) / len(held)
        assert task["gpu_utilisation"] == pytest.approx(percent / 100)
        assert task["gpu_memory_bytes"] == len(held) * 2**30
        assert task["gpu_power_w"] == pytest.approx(sum(card.power_mw or 0 for card in held) / 1000)
        assert f"GPU {percent:.0f} %" in err
    lines = samples(project, summary["run_id"])
    assert {line["task"] for line in lines} == {"worker-0", "worker-1"}
    assert len({line["time_unix"] for line in lines}) >= 4
    assert json.loads(lab(project, "show", "last", "--json")[0]) == summary


def test_without_a_client_nothing_is_sampled_and_attach_resumes(
    project: Path, box: dict[str, str]
) -> None:
    run = ("run", "sampled.py", "--detach", "--", "--runs", str(project / "runs"))
    run_id = lab(project, *run, **box)[0].strip()
    file = project / "runs" / run_id / "gpu.jsonl"
    assert not file.exists()
    # An earlier client has left half a line.
    first = {"time_unix": time.time(), "task": "worker-0", "gpu": "GPU-x", "utilisation": 0.0}
    file.write_text(json.dumps(first) + '\n{"time_')
    lab(project, "attach", run_id, **box)
    lines = samples(project, run_id)
    assert lines[0] == first
    assert len(lines) >= 11
