"""Renders a config as a file that another program boots, for `lab render`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from lab.backends.names import AUTO, TARGETS, capabilities
from lab.backends.options import changed, text_of
from lab.backends.planned_run import planned_run, tensorflow_version
from lab.backends.planner import Planner
from lab.backends.registry import planner_named
from lab.backends.rendered_file import Rendering, RenderOptions, current_text, read_state
from lab.config import Cluster, load_cluster
from lab.errors import Notify
from lab.placement.place import Placed
from lab.placement.plan import PlannedRun
from lab.run.planning import make_plan
from lab.tf_versions import CURRENT, IMAGES


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered config.

    Attributes:
        text: The text of the file.
        placed: The plan.
        cluster: The config.
        run: The run that the tasks train at their start; None: they wait for runs.
        planner: The part of the backend that rendered it.
    """

    text: str
    placed: Placed
    cluster: Cluster
    run: PlannedRun | None
    planner: Planner


def render_config(
    path: Path,
    target: str,
    options: RenderOptions,
    *,
    relative_to: Path,
    root: Path,
    explain: Notify | None = None,
) -> Rendered:
    """Render a config.

    Args:
        path: The path of the config.
        target: The backend's name.
        options: The options.
        relative_to: The directory of the rendered file. All paths in the file are relative to it,
            so that the current directory does not change the file.
        root: The project's directory.
        explain: Receives the reason for each node's GPUs and each task's CPUs.

    Raises:
        LabError: The config cannot be read, has errors, does not fit the host, or has values that
            the backend cannot have.
    """
    planner = planner_named(target).with_options(options.own)
    cluster = load_cluster(path)
    run = planned_run(cluster, options.run)
    version = tensorflow_version(run, options.tensorflow, CURRENT.tensorflow)
    placed = make_plan(
        cluster, options.gpus, tensorflow=version, backend=target, file=path, explain=explain
    )
    rendering = Rendering.at(relative_to, path, root, run, options.run)
    return Rendered(planner.render(placed.plan, rendering), placed, cluster, run, planner)


def recorded(file: Path, target: str) -> RenderOptions | None:
    """Return the options in a rendered file's header; None if it is missing or has none."""
    return read_state(current_text(file), capabilities(target).options)


def with_recorded(options: RenderOptions, file: Path, target: str) -> RenderOptions:
    """Return the options for a comparison: those that are not given are taken from the file."""
    others = recorded(file, target) or RenderOptions()
    return RenderOptions(
        others.gpus if options.gpus == AUTO else options.gpus,
        options.tensorflow or (others.tensorflow if others.tensorflow in IMAGES else None),
        options.run or others.run,
        {**others.own, **options.own},
    )


def default_output(target: str, *, existing: bool) -> str:
    """Return the file of a target.

    Args:
        target: The backend's name.
        existing: Whether to return the one that is here, if only another than the first is.
    """
    files = capabilities(target).renders
    found = [each for each in files if Path(each).exists()]
    return found[0] if existing and found else files[0]


def command_of(path: Path, target: str, output: str, options: RenderOptions) -> str:
    """Return the command that writes a file with these options."""
    own = changed(capabilities(target).options, options.own)
    given = {
        f"--target={target}": target != TARGETS[0],
        **{f"-o={name}={text_of(value)}": True for name, value in own.items()},
        f"--gpus={options.gpus}": options.gpus in {"index", "none"},
        f"--tensorflow={options.tensorflow}": options.tensorflow not in {None, CURRENT.tensorflow},
        f"--output={output}": output != default_output(target, existing=False),
    }
    name, *flags = shlex.split(options.run) or [""]
    words = [str(path), *(flag for flag, used in given.items() if used)]
    words += [f"--run={name}"] if name else []
    return f"lab render {shlex.join([*words, *(['--', *flags] if flags else [])])}"
