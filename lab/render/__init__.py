"""Renders a plan as a compose file, and reads and writes rendered files."""

from __future__ import annotations

import difflib
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from lab.config import Cluster, load_cluster
from lab.errors import InputError, LabError
from lab.gpu import take_inventory
from lab.outputs import write_output
from lab.placement.plan import Plan, PlannedRun
from lab.render.compose import render
from lab.render.header import DEFAULTS, GPUS_BY, NETWORKS, RenderOptions, read_header
from lab.render.planned_run import planned_run, run_override, tensorflow_version
from lab.text import short, visible
from lab.tf_versions import CURRENT

__all__ = [
    "DEFAULTS",
    "GPUS_BY",
    "NETWORKS",
    "RenderOptions",
    "current_text",
    "plan_file",
    "planned_run",
    "read_header",
    "render",
    "render_file",
    "render_options",
    "render_plan",
    "run_override",
    "stale_diff",
    "tensorflow_version",
    "write",
]


BASH: Final = b"#!/bin/bash\n"
"""The first line of a batch script."""


def plan_file(cluster_path: Path, mode: str, tensorflow: str = CURRENT.tensorflow) -> Plan:
    """Read a config and place it on this host.

    Args:
        cluster_path: The path of the config.
        mode: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        tensorflow: The TensorFlow version of its tasks.

    Raises:
        LabError: The config cannot be read, has errors, or does not fit the host.
    """
    return replace(_place(load_cluster(cluster_path), mode), tensorflow=tensorflow)


def _place(cluster: Cluster, mode: str) -> Plan:
    # Imported here: commands that only read a rendered file do not need it.
    from lab.placement.place import place  # noqa: PLC0415

    return place(cluster, take_inventory(mode, cluster))


def render_file(
    cluster_path: Path,
    options: RenderOptions = DEFAULTS,
    *,
    relative_to: Path = Path(),
    root: Path | None = None,
) -> str:
    """Render a config.

    Args:
        cluster_path: The path of the config.
        options: The options.
        relative_to: The directory of the rendered file. All paths in the file are relative to it,
            so that the current directory does not change the file.
        root: The project's directory; None: `relative_to`.

    Returns:
        The text of the compose file.

    Raises:
        LabError: The config cannot be read, has errors, or does not fit the host.
    """
    cluster = load_cluster(cluster_path)
    planned = planned_run(cluster, options.run)
    version = tensorflow_version(planned, options.tensorflow, CURRENT.tensorflow)
    plan = replace(_place(cluster, options.mode), tensorflow=version)
    return render_plan(plan, cluster_path, planned, options, relative_to=relative_to, root=root)


def render_plan(
    plan: Plan,
    cluster_path: Path,
    run: PlannedRun | None = None,
    options: RenderOptions = DEFAULTS,
    *,
    relative_to: Path = Path(),
    root: Path | None = None,
) -> str:
    """Render the plan of a config; see `render` and `render_file`."""
    name = _relative(cluster_path, relative_to)
    folder = _relative(root or relative_to, relative_to)
    folder = folder if folder.startswith(".") else f"./{folder}"
    return render(plan, cluster_file=name, run=run, options=options, folder=folder)


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.absolute(), folder.absolute())).as_posix()


def render_options(path: Path) -> RenderOptions | None:
    """Return the options of a rendered file, by its header; None if file or header is missing."""
    return read_header(current_text(path))


def stale_diff(path: Path, text: str) -> str:
    """Compare a rendered file with its expected text.

    Args:
        path: The file; a missing file counts as empty.
        text: The expected text.

    Returns:
        A unified diff, with control characters made visible; "" if there is no difference.

    Raises:
        InputError: The file cannot be read.
    """
    current = current_text(path)
    if current == text:
        return ""
    name = short(str(path))
    lines = difflib.unified_diff(
        current.splitlines(), text.splitlines(), name, f"{name} (rendered again)", lineterm=""
    )
    shown = "\n".join(visible(line) for line in lines)
    # `splitlines` removes line endings, so that a difference of these alone gives an empty diff.
    return f"{shown or f'{name}: its line endings differ'}\n"


def is_rendered(begin: bytes) -> bool:
    """Whether a file with this beginning was rendered."""
    return begin.removeprefix(BASH).startswith(b"# Rendered from ")


def write(path: Path, text: str, flag: str = "--output") -> None:
    """Write a rendered file atomically.

    Args:
        path: The file.
        text: Its text.
        flag: The flag that names the file, for the message.

    Raises:
        LabError: The file cannot be written.
    """
    try:
        write_output(path, text.encode())
    except OSError as error:
        raise LabError(
            f"{short(str(path))} cannot be written ({error.strerror})",
            f"name another file with `{flag}`",
        ) from None


def current_text(path: Path) -> str:
    """Return the text of a rendered file; "" if it is missing.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(
            f"{short(str(path))} cannot be read ({error.strerror})",
            "name another file with `--output`",
        ) from None
