"""Configs as rendered files, without the command."""

from __future__ import annotations

from pathlib import Path

from lab.backends.names import COMPOSE, capabilities
from lab.backends.rendered_file import RenderOptions, read_state
from lab.cluster.config import load_cluster
from lab.cluster.placement.place import place_here
from lab.cluster.placement.plan import Plan
from lab.verbs.render import render_config

INDEX = RenderOptions("index")


def render_file(
    path: Path,
    options: RenderOptions = INDEX,
    *,
    target: str = COMPOSE,
    relative_to: Path = Path(),
) -> str:
    return render_config(path, target, options, relative_to=relative_to, root=relative_to).text


def plan_file(path: Path, mode: str = "index") -> Plan:
    return place_here(load_cluster(path), mode, "tensorflow").plan


def read_header(text: str, target: str = COMPOSE) -> RenderOptions | None:
    """The options in the header of a rendered file."""
    return read_state(text, capabilities(target).options)
