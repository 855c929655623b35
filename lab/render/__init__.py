"""From a plan to the file of an orchestrator, and that file on the disk."""

from __future__ import annotations

import difflib
import os
from dataclasses import replace
from pathlib import Path

from lab.config import Cluster, load_cluster
from lab.errors import InputError, LabError
from lab.gpu import take_inventory
from lab.outputs import write_output
from lab.placement.plan import Plan, PlannedRun
from lab.render.compose import render
from lab.render.header import RenderOptions, read_header
from lab.render.planned_run import planned_run, run_override, tensorflow_version
from lab.task.text import short, visible
from lab.tf_versions import CURRENT

__all__ = [
    "RenderOptions",
    "plan_file",
    "planned_run",
    "read_header",
    "recorded",
    "render",
    "render_file",
    "render_plan",
    "run_override",
    "stale_diff",
    "tensorflow_version",
    "write",
]


def plan_file(cluster_path: Path, mode: str, tensorflow: str = CURRENT.tensorflow) -> Plan:
    """Read a description and place it.

    Args:
        cluster_path: The description.
        mode: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        tensorflow: The version that its tasks are to have.

    Raises:
        LabError: It cannot be read, has faults, or does not fit the box.
    """
    return replace(_place(load_cluster(cluster_path), mode), tensorflow=tensorflow)


def _place(cluster: Cluster, mode: str) -> Plan:
    # Imported here: who only reads a rendered file needs no placement.
    from lab.placement.place import place  # noqa: PLC0415

    return place(cluster, take_inventory(mode, cluster))


def render_file(
    cluster_path: Path,
    mode: str,
    *,
    tensorflow: str | None = None,
    run: str = "",
    relative_to: Path = Path(),
) -> str:
    """Render a description.

    Args:
        cluster_path: The description.
        mode: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        tensorflow: The version that its tasks are to have; None: the run's, or the current one.
        run: What stands in the place of the description's run; see `planned_run`.
        relative_to: The directory of the rendered file: its header names the description from
            there, so that it is the same wherever the command is called.

    Returns:
        The text of the compose file.

    Raises:
        LabError: The description cannot be read, has faults, or does not fit the box.
    """
    cluster = load_cluster(cluster_path)
    planned = planned_run(cluster, run)
    version = tensorflow_version(planned, tensorflow, CURRENT.tensorflow)
    plan = replace(_place(cluster, mode), tensorflow=version)
    return render_plan(plan, cluster_path, planned, run, relative_to=relative_to)


def render_plan(
    plan: Plan,
    cluster_path: Path,
    run: PlannedRun | None = None,
    override: str = "",
    *,
    relative_to: Path = Path(),
) -> str:
    """Render a plan that was made from a description; see `render` and `render_file`."""
    name = os.path.relpath(cluster_path.absolute(), relative_to.absolute())
    return render(plan, cluster_file=Path(name).as_posix(), run=run, override=override)


def recorded(path: Path) -> RenderOptions | None:
    """How a rendered file was made; None where there is no such file or header."""
    return read_header(_present(path))


def stale_diff(path: Path, text: str) -> str:
    """How a rendered file differs from what it should be.

    Args:
        path: The file; one that is missing counts as empty.
        text: What it should be.

    Returns:
        A unified diff, with control characters made visible; "" where there is no difference.

    Raises:
        InputError: The file cannot be read.
    """
    present = _present(path)
    if present == text:
        return ""
    name = short(str(path))
    lines = difflib.unified_diff(
        present.splitlines(), text.splitlines(), name, f"{name} (rendered again)", lineterm=""
    )
    shown = "\n".join(visible(line) for line in lines)
    # Line ends alone make no line of a diff.
    return f"{shown or f'{name}: its line ends differ'}\n"


def is_rendered(begin: bytes) -> bool:
    """Whether a file that begins so was rendered."""
    return begin.startswith(b"# Rendered from ")


def write(path: Path, text: str, flag: str = "--output") -> None:
    """Write a rendered file, whole or not at all.

    Args:
        path: The file.
        text: All of it.
        flag: The flag that names it, for the message.

    Raises:
        LabError: It cannot be written there.
    """
    try:
        write_output(path, text.encode())
    except OSError as error:
        raise LabError(
            f"{short(str(path))} cannot be written ({error.strerror})",
            f"name another file with `{flag}`",
        ) from None


def _present(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(
            f"{short(str(path))} cannot be read ({error.strerror})",
            "name another file with `--output`",
        ) from None
