"""`lab render`.

Examples:
    # with the GPUs of this host
    lab render
    # from another config, printed to stdout
    lab render clusters/book.yaml --output -
    # print a diff and exit with code 1 if the file is out of date
    lab render --check
    # on Engine 28 or later: tasks cannot reach this host
    lab render -o network=isolated
    # also draw the cluster
    lab render --picture cluster.svg
    # a batch script for Slurm, cluster.sbatch
    lab render clusters/slurm.yaml --target slurm -o time=2h
    # its tasks run in an Apptainer image
    lab render clusters/slurm.yaml --target slurm -o container=lab.sif
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from lab.backends.names import AUTO, TARGETS, capabilities
from lab.backends.options import read_options
from lab.backends.planned_run import run_override
from lab.backends.rendered_file import RenderOptions, is_rendered, stale_diff, write
from lab.console import notify
from lab.errors import InputError, LabError
from lab.experiments.registry import EXPERIMENTS
from lab.options import Flag, ProgramArguments, Switch
from lab.options.shared import (
    ClusterArgument,
    ClusterFile,
    Explain,
    Force,
    GpuMode,
    OwnOptions,
    Strict,
    Tensorflow,
)
from lab.options.types import one_of, text
from lab.outputs import check_output
from lab.plots import is_svg
from lab.project import cluster_path, find_root
from lab.run.planning import report_warnings
from lab.service.rendering import (
    Rendered,
    command_of,
    default_output,
    render_config,
    with_recorded,
)
from lab.text import short


def command(  # longer than 60 lines: the parameters are the command line
    *,
    file: ClusterArgument = None,
    cluster: ClusterFile = None,
    target: Annotated[
        str, Flag("the backend whose file to write", one_of(*TARGETS), shows="TARGET")
    ] = TARGETS[0],
    option: OwnOptions = (),
    check: Annotated[
        bool, Switch("write no file; print a diff and exit with code 1 if the file is out of date")
    ] = False,
    gpus: GpuMode = AUTO,
    explain: Explain = False,
    strict: Strict = False,
    tensorflow: Tensorflow = None,
    output: Annotated[
        str | None,
        Flag(
            "the file to write, or - for stdout (default: compose.yaml, or cluster.sbatch)",
            text,
            shows="FILE",
        ),
    ] = None,
    force: Force = False,
    picture: Annotated[
        str | None, Flag("also draw the cluster to this SVG file", text, shows="FILE")
    ] = None,
    run: Annotated[
        str | None,
        Flag(
            "what the tasks train at their start: an experiment, or none (default: `run:` of FILE)",
            shows="EXPERIMENT",
        ),
    ] = None,
    rest: Annotated[
        tuple[str, ...], ProgramArguments("flags of the experiment, after --", verbatim=True)
    ] = (),
) -> None:
    """Render the config as a compose file, or as a batch script for Slurm."""
    path = cluster_path(cluster, file)
    own = read_options(target, capabilities(target).options, option)
    options = RenderOptions(gpus, tensorflow, run_override(run, rest), own)
    output = output or default_output(target, existing=check)
    _refuse(target, {"--explain": explain, "--strict": strict}, check=check, picture=picture)
    if check:
        _check(path, target, output, options)
        return
    if output != "-":
        check_output("--output", Path(output), is_rendered, force=force)
    if picture is not None:
        check_output("--picture", Path(picture), is_svg, force=force)
        if output != "-" and Path(picture).resolve() == Path(output).resolve():
            raise InputError("--picture and --output name the same file", "name another file")
    folder = Path() if output == "-" else Path(output).parent
    rendered = render_config(
        path,
        target,
        options,
        relative_to=folder,
        root=find_root(path),
        explain=notify if explain else None,
    )
    report_warnings(rendered.placed, rendered.cluster, gpus, notify, strict=strict)
    for notice in rendered.planner.render_notices(rendered.run):
        notify(notice)
    if picture is not None:
        _draw(rendered, Path(picture))
    if output == "-":
        sys.stdout.write(rendered.text)
    else:
        write(Path(output), rendered.text)
        trains = f"; it trains {rendered.run.arguments[0]}" if rendered.run else ""
        notify(f"wrote {output}; {rendered.planner.start_hint(Path(output))}{trains}")


def _refuse(target: str, gpu_flags: dict[str, bool], *, check: bool, picture: str | None) -> None:
    """Refuse flags without an effect."""
    given = [flag for flag, is_given in gpu_flags.items() if is_given]
    if given and not capabilities(target).host_gpus:
        raise InputError(f"--target {target} has no {given[0]}", f"leave out {given[0]}")
    given += ["--picture"] if picture is not None else []
    if check and given:
        # The result must not depend on which GPUs are in use now.
        raise InputError(
            f"--check only compares, so that {given[0]} has no effect", f"leave out {given[0]}"
        )


def _draw(rendered: Rendered, picture: Path) -> None:
    # Imported here: importing matplotlib takes a second, and only a picture needs it.
    from lab.plots.cluster import draw_shape  # noqa: PLC0415
    from lab.plots.shape import of_plan  # noqa: PLC0415
    from lab.plots.style import svg  # noqa: PLC0415

    experiment = EXPERIMENTS[rendered.run.arguments[0]] if rendered.run else None
    shape = of_plan(rendered.placed.plan, experiment)
    write(picture, svg(draw_shape(shape)).decode(), "--picture")
    notify(f"wrote {short(str(picture))}")


def _check(path: Path, target: str, output: str, options: RenderOptions) -> None:
    """Compare a file with what is rendered now."""
    file = Path(output)
    if output == "-":
        raise InputError("--check needs a file", "leave out --output -")
    if not file.is_file():
        raise LabError(f"{file} is missing", "write it with `lab render`")
    options = with_recorded(options, file, target)
    found = render_config(path, target, options, relative_to=file.parent, root=find_root(path))
    if diff := stale_diff(file, found.text):
        sys.stdout.write(diff)
        again = command_of(path, target, output, options)
        raise LabError(f"{file} is out of date", f"write it again with `{again}`")
    notify(f"{file} is up to date")
