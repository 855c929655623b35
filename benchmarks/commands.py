"""How long `lab --help` and `lab render` take, as whole processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

import yaml

from benchmarks import pairs
from benchmarks.measure import Setting, say, told
from benchmarks.outcome import Outcome, Target
from benchmarks.trainings import ROOT, Workplace

HELP = Target("at most", 0.2)
RENDER = Target("at most", 1.0)
NODES, PER_NODE = 125, 8
LEAST_HELPS = 20


def measure_help(setting: Setting) -> list[Outcome]:
    """`lab --help`, beside a Python that does nothing."""
    repeats = setting.pairs if setting.quick else max(LEAST_HELPS, setting.pairs)
    say(f"lab --help: {repeats} pairs")
    answer = [sys.executable, "-m", "lab", "--help"]
    seconds(setting.place, answer)  # not counted: it may write bytecode
    both = pairs.interleaved(
        lambda: seconds(setting.place, answer),
        lambda: seconds(setting.place, [sys.executable, "-c", "pass"]),
        repeats,
    )
    helps, bare = ([pair[side] for pair in both] for side in (0, 1))
    return [
        Outcome(
            key="help",
            what="`lab --help`",
            unit="s",
            target=HELP,
            found=pairs.estimate(helps),
            how="The whole process, `python -m lab --help`, from its start to its end.",
            details={"`python -c pass`": f"{pairs.estimate(bare).median:.3f} s"},
            raw={"pass_s": bare},
        )
    ]


def measure_render(setting: Setting) -> list[Outcome]:
    """`lab render` of a thousand tasks."""
    say(f"lab render of 1,000 tasks: {setting.pairs} times")
    description = setting.place.folder / "render" / "cluster.yaml"
    description.parent.mkdir()
    (description.parent / "scripts").mkdir()
    description.write_text(thousand_tasks(), encoding="utf-8")
    output = description.with_name("docker-compose.yml")
    command = [sys.executable, "-m", "lab", "render", "--gpus", "index"]
    command += ["--cluster", str(description), "--output", str(output)]
    taken = [
        told(
            "lab render", lambda: seconds(setting.place, command), lambda found: f"{found:.3f} s"
        )()
        for _ in range(setting.pairs)
    ]
    tasks = output.read_text(encoding="utf-8").count("lab.task: ")
    if tasks != NODES * PER_NODE:
        raise RuntimeError(f"{tasks} tasks were rendered")
    return [
        Outcome(
            key="render",
            what="`lab render` of 1,000 tasks",
            unit="s",
            target=RENDER,
            found=pairs.estimate(taken),
            how=(
                f"The whole process; {NODES} nodes with {PER_NODE} tasks each (a ps and 7 workers"
                " with a GPU each), pinned by index."
            ),
            details={"compose file": f"{output.stat().st_size / 2**20:.1f} MiB"},
        )
    ]


def thousand_tasks() -> str:
    """A description of a thousand tasks on 125 nodes."""
    nodes = [f"tf{number}" for number in range(1, NODES + 1)]
    workers = PER_NODE - 1
    description = {
        "version": 1,
        "name": "thousand",
        "box": {"gpus": NODES * workers},
        "nodes": {node: {"gpus": workers} for node in nodes},
        "jobs": {
            "ps": {"on": nodes},
            "worker": {"on": [node for node in nodes for _ in range(workers)], "gpus": 1},
        },
    }
    text: str = yaml.safe_dump(description, sort_keys=False)
    return text


def seconds(place: Workplace, command: Sequence[str]) -> float:
    """How long a command takes from its start to its end."""
    began = time.perf_counter()
    subprocess.run(
        command,
        env=place.environ,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )
    return time.perf_counter() - began
