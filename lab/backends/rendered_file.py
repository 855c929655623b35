"""Rendered files: the run that they start, the options in their headers, how they are written."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.backends.build_context import DOCKERFILE, context_of
from lab.backends.names import COMPOSE, capabilities
from lab.backends.options import BackendOption, Values, changed, defaults_of, text_of
from lab.base.errors import InputError, LabError
from lab.base.files import write_output
from lab.base.text import short, visible
from lab.cluster.config import Cluster
from lab.cluster.config.validation import RUN_SERVICE
from lab.cluster.placement.plan import Plan, PlannedRun
from lab.protocol.experiments.experiment import misfit
from lab.protocol.experiments.registry import EXPERIMENTS

BASH: Final = b"#!/bin/bash\n"
"""The first line of a batch script."""

_STATE: Final = re.compile(
    r"^# lab: (\S.* cluster-sha256=[0-9a-f]{64})$((?:\n# lab: .+$)*)", re.MULTILINE
)
_RUNTIME: Final = re.compile(r"[a-z0-9.-]+")
_MAX_HEADER: Final = 4000  # characters that are searched for the header


@dataclass(frozen=True, slots=True)
class Rendering:
    """What a rendered file contains beside the plan and the backend's options.

    Attributes:
        cluster_file: The path of the config, for the header.
        folder: The path of the project's directory, from the file's own directory. It begins with a
            dot, because compose takes `github.com/x` for an address.
        run: The run that starts with the tasks; None if they wait for runs.
        override: The value of `--run` with its flags; "": the config's run.
        context: The directory that the image is built from, from the project's directory.
        dockerfile: The Dockerfile, from that directory.
    """

    cluster_file: str = "cluster.yaml"
    folder: str = "."
    run: PlannedRun | None = None
    override: str = ""
    context: str = "."
    dockerfile: str = DOCKERFILE

    @property
    def does(self) -> str:
        """What a scheduler does with the file."""
        return f"trains {short(self.run.command)}" if self.run else "boots the cluster for runs"

    @classmethod
    def at(
        cls,
        folder: Path,
        cluster: Path,
        root: Path,
        run: PlannedRun | None = None,
        override: str = "",
    ) -> Rendering:
        """Return the rendering of a file in a directory; all paths are relative to it."""
        project = _relative(root, folder)
        project = project if project.startswith(".") else f"./{project}"
        built = context_of(root)
        dockerfile = _relative(built.dockerfile, built.folder)
        return cls(
            _relative(cluster, folder),
            project,
            run,
            override,
            _relative(built.folder, root),
            dockerfile,
        )


PLAIN: Final = Rendering()
"""No run; the file is in the project's directory."""


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.absolute(), folder.absolute())).as_posix()


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """The user's options for a rendered file, in addition to its config.

    Attributes:
        gpus: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        runtime: The runtime of its tasks; None: the run's, or the default one.
        run: The value of `--run` with its flags; "": the config's run.
        own: The backend's own options that differ from the defaults.
    """

    gpus: str = "auto"
    runtime: str | None = None
    run: str = ""
    own: Values = field(default_factory=dict)


def header(plan: Plan, backend: str, own: Values, rendering: Rendering, *usage: str) -> str:
    """Return the comment at the top of a rendered file; `read_state` reads the options in it.

    Args:
        plan: The plan.
        backend: The backend's name.
        own: The values of its options.
        rendering: The run, and the path of the config.
        *usage: What a user does with the file, line by line.
    """
    declared = capabilities(backend).options
    values = {**defaults_of(declared), **own}
    words = {
        "gpus": plan.mode,
        **{option.name: text_of(values[option.name]) for option in declared},
        "runtime": plan.runtime,
        "cluster-sha256": plan.cluster_sha256,
    }
    target = "" if backend == COMPOSE else f" --target {backend}"
    file, command = visible(rendering.cluster_file), f"python -m lab render{target}"
    lines = [
        f"Rendered from {file} by `{command}`; do not edit.",
        f"Change {file} and render again. `{command} --check` compares.",
        "",
        *usage,
        "",
        "lab: " + " ".join(f"{name}={value}" for name, value in words.items() if value),
        *([f"lab: run={visible(rendering.override)}"] if rendering.override else []),
    ]
    return "".join(f"# {line}\n" if line else "#\n" for line in lines) + "\n"


def read_state(text: str, declared: Sequence[BackendOption]) -> RenderOptions | None:
    """Return the options in a rendered file's header; None if it has none.

    Args:
        text: The text of the file.
        declared: The options of the backend that rendered it.
    """
    state = _STATE.search(text[:_MAX_HEADER])
    if state is None:
        return None
    words = [*state[1].split(" "), *(line.removeprefix("# lab: ") for line in state[2].split("\n"))]
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    gpus, runtime = fields.get("gpus", ""), fields.get("runtime", "")
    try:
        own = {item.name: item.parse(fields[item.name]) for item in declared if item.name in fields}
    except ValueError:
        return None
    if gpus not in {"uuid", "index", "none", "count"} or not _RUNTIME.fullmatch(runtime):
        return None
    mode = "auto" if gpus == "count" else gpus
    return RenderOptions(mode, runtime, fields.get("run", ""), changed(declared, own))


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


def write(path: Path, text: str) -> None:
    """Write a rendered file atomically.

    Args:
        path: The file.
        text: Its text.

    Raises:
        LabError: The file cannot be written.
    """
    try:
        write_output(path, text.encode())
    except OSError as error:
        raise LabError(
            f"{path} cannot be written ({error.strerror})",
            "name another file with `--output`",
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
            f"{path} cannot be read ({error.strerror})",
            "name another file with `--output`",
        ) from None


NO_RUN: Final = "none"
"""The value of `--run` that removes the config's run."""

_MAX_LENGTH: Final = 1000  # characters, so that the header stays within its limit


def run_override(experiment: str | None, flags: Sequence[str]) -> str:
    """Return the value of `--run EXPERIMENT -- FLAGS` for the header; "" if there is none.

    Raises:
        InputError: There are flags and no experiment.
    """
    if flags and experiment in {None, NO_RUN}:
        raise InputError(
            "flags after `--` need an experiment", "name it: `lab render --run sync -- --epochs=2`"
        )
    return shlex.join((experiment, *flags)) if experiment is not None else ""


def planned_run(cluster: Cluster, override: str = "") -> PlannedRun | None:
    """Return the run of a config, or the override.

    Args:
        cluster: The config.
        override: `none`, or an experiment and its flags as in a shell; "": the config's run.

    Raises:
        InputError: There is no such experiment, it does not fit the cluster, or its flags cannot be
            written to a compose file.
    """
    if override == NO_RUN or not (override or cluster.run):
        return None
    if override:
        arguments = tuple(shlex.split(override))
        name = arguments[0]
        if name not in EXPERIMENTS:
            raise InputError(f"--run: lab has no experiment {name!r}", "see `lab experiments`")
        if why := misfit(EXPERIMENTS[name], cluster.task_counts):
            raise InputError(f"--run: {name} {why}", "choose another experiment or config")
        if RUN_SERVICE in cluster.nodes:
            raise InputError(
                f"--run: the config has a node {RUN_SERVICE!r}; both become services",
                "give the node another name",
            )
    else:
        arguments = cluster.run.arguments if cluster.run else ()
    text = shlex.join(arguments)
    if not text.isprintable() or set(text) & set("${}") or len(text) > _MAX_LENGTH:
        raise InputError(
            f"the run {text!r} cannot be written to a compose file",
            f"write at most {_MAX_LENGTH} printable characters without $, {{ and }}",
        )
    return PlannedRun(arguments, cluster.start, cluster.faults, cluster.env)


def runtime_of(run: PlannedRun | None, requested: str | None, default: str) -> str:
    """Return the name of the tasks' runtime.

    Args:
        run: The run, if there is one.
        requested: The runtime that the user names, or None.
        default: The runtime without a run and without a named runtime.

    Raises:
        InputError: The run needs another runtime than the user names.
    """
    if run is None:
        return requested or default
    needed = EXPERIMENTS[run.arguments[0]].runtime
    if requested not in {None, needed}:
        raise InputError(
            f"the config's run, {run.arguments[0]!r}, needs {needed}",
            "leave out --framework, or leave out the run with `--run none`",
        )
    return needed
