"""Configs to render: this project's own, and large ones made for the benchmarks."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.trainings import ROOT, Workplace

NODES, PER_NODE = 125, 8
SHARING = 10
"""Tasks on each node of `sharing`."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """A config, and the compose file that is rendered from it.

    Attributes:
        config: The config file.
        output: The compose file.
        mode: The value of --gpus.
    """

    config: Path
    output: Path
    mode: str

    @property
    def command(self) -> list[str]:
        """The command that renders it."""
        args = ["--cluster", str(self.config), "--output", str(self.output)]
        return [sys.executable, "-m", "lab", "render", "--gpus", self.mode, *args]


def default(place: Workplace, mode: str = "index") -> Rendering:
    """Return the rendering of this project's own config."""
    return Rendering(ROOT / "cluster.yaml", _folder(place) / "default.yml", mode)


def written(place: Workplace, content: Mapping[str, Any], mode: str = "index") -> Rendering:
    """Write a config into the place, and return its rendering."""
    folder = _folder(place)
    name = f"{content['name']}-{mode}"
    (folder / f"{name}.yaml").write_text(text(content), encoding="utf-8")
    return Rendering(folder / f"{name}.yaml", folder / f"{name}.yml", mode)


def _folder(place: Workplace) -> Path:
    folder = place.folder / "render"
    (folder / "scripts").mkdir(parents=True, exist_ok=True)
    return folder


def thousand_tasks() -> dict[str, Any]:
    """Return a config of 1,000 tasks on 125 nodes: a ps and 7 workers with a GPU each."""
    nodes = _names(NODES)
    workers = PER_NODE - 1
    return {
        "version": 1,
        "name": "thousand",
        "box": {"gpus": NODES * workers},
        "nodes": {node: {"gpus": workers} for node in nodes},
        "jobs": {
            "ps": {"on": nodes},
            "worker": {"on": [node for node in nodes for _ in range(workers)], "gpus": 1},
        },
    }


def sharing(nodes: int) -> dict[str, Any]:
    """Return a config of ten tasks a node: a ps, and nine workers that share a GPU.

    A config has at most 1,024 GPUs and at most 10,000 tasks.
    """
    names = _names(nodes)
    worker = {"on": [name for name in names for _ in range(SHARING - 1)], "gpus": 1, "share": True}
    return {
        "version": 1,
        "name": f"sharing-{nodes}",
        "nodes": {name: {"gpus": 1} for name in names},
        "jobs": {"ps": {"on": names}, "worker": worker},
    }


def text(content: Mapping[str, Any]) -> str:
    """Return the text of a config file."""
    return json.dumps(content, indent=1)


def _names(nodes: int) -> list[str]:
    return [f"tf{number}" for number in range(1, nodes + 1)]
