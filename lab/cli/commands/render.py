"""`lab render`.

Examples:
    # with the GPUs of this box
    lab render
    # of another description, to look at
    lab render clusters/book.yaml --output -
    # exit 1 and a diff when the file is stale
    lab render --check
    # and a picture of the cluster
    lab render --picture cluster.svg
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from lab.backends.selection import AUTO
from lab.cli.arguments import Flag, ProgramArguments, Switch
from lab.cli.options import (
    ClusterArgument,
    ClusterFile,
    Explain,
    Force,
    GpuMode,
    Strict,
    Tensorflow,
)
from lab.cli.param_types import text
from lab.config import load_cluster
from lab.console import notify
from lab.errors import InputError, LabError
from lab.outputs import check_output
from lab.placement.plan import Plan, PlannedRun
from lab.plots import is_svg
from lab.render import (
    is_rendered,
    planned_run,
    recorded,
    render_file,
    render_plan,
    run_override,
    stale_diff,
    tensorflow_version,
    write,
)
from lab.run.project import cluster_path
from lab.service.planning import make_plan
from lab.task.protocol.experiments import EXPERIMENTS
from lab.task.protocol.faults import parse
from lab.task.text import short
from lab.tf_versions import CURRENT, IMAGES


def command(  # longer than 60 lines: the parameters are the command line
    *,
    file: ClusterArgument = None,
    cluster: ClusterFile = None,
    check: Annotated[
        bool, Switch("write nothing; exit 1 and a diff when the file is stale")
    ] = False,
    gpus: GpuMode = AUTO,
    explain: Explain = False,
    strict: Strict = False,
    tensorflow: Tensorflow = None,
    output: Annotated[str, Flag("the file to write, or - for stdout", text, shows="FILE")] = (
        "docker-compose.yml"
    ),
    force: Force = False,
    picture: Annotated[
        str | None, Flag("also draw the cluster, as an SVG", text, shows="FILE")
    ] = None,
    run: Annotated[
        str | None,
        Flag(
            "what `docker compose up` trains: an experiment, or none (default: `run:` of the"
            " description)",
            shows="EXPERIMENT",
        ),
    ] = None,
    rest: Annotated[
        tuple[str, ...], ProgramArguments("flags of that experiment, behind --", verbatim=True)
    ] = (),
) -> None:
    """Render the description as a compose file."""
    path = cluster_path(cluster, file)
    override = run_override(run, rest)
    others = {"--explain": explain, "--strict": strict, "--picture": picture is not None}
    if check and any(others.values()):
        # Whether a file is stale must not depend on who uses the box at the moment.
        argument = next(name for name, given in others.items() if given)
        raise InputError(
            f"--check only compares: {argument} means nothing to it", f"leave out {argument}"
        )
    if check:
        _check(path, Path(output), gpus, tensorflow, override)
        return
    if output != "-":
        check_output("--output", Path(output), is_rendered, force=force)
    if picture is not None:
        check_output("--picture", Path(picture), is_svg, force=force)
        if output != "-" and Path(picture).resolve() == Path(output).resolve():
            raise InputError("--picture and --output name the same file", "name another file")
    described = load_cluster(path)
    trained = planned_run(described, override)
    version = tensorflow_version(trained, tensorflow, CURRENT.tensorflow)
    reasons = notify if explain else None
    planned = make_plan(described, gpus, tensorflow=version, explain=reasons)
    planned.report_warnings(notify, strict=strict)
    for fault in trained.faults if trained else ():
        if parse(fault).kind.on_network:
            notify(f"warning: fault {fault} needs a client: `docker compose up` leaves it out")
    if picture is not None:
        _draw(planned.plan, trained, Path(picture))
    if output == "-":
        sys.stdout.write(render_plan(planned.plan, path, trained, override))
    else:
        target = Path(output)
        text = render_plan(planned.plan, path, trained, override, relative_to=target.parent)
        write(target, text)
        trains = f"; it trains {trained.arguments[0]}" if trained else ""
        notify(f"{output} is written; boot it with {_boot_command(target)}{trains}")


def _draw(plan: Plan, run: PlannedRun | None, picture: Path) -> None:
    # Imported here: matplotlib costs a second, and only a picture needs it.
    from lab.plots.cluster import draw_shape  # noqa: PLC0415
    from lab.plots.shape import of_plan  # noqa: PLC0415
    from lab.plots.style import svg  # noqa: PLC0415

    experiment = EXPERIMENTS[run.arguments[0]] if run else None
    write(picture, svg(draw_shape(of_plan(plan, experiment))).decode(), "--picture")
    notify(f"{short(str(picture))} is drawn")


def _boot_command(file: Path) -> str:
    default = file.name == "docker-compose.yml" and file.parent == Path()
    return "`docker compose up`" if default else f"`docker compose --file {file} up`"


def _check(path: Path, output: Path, gpus: str, tensorflow: str | None, override: str) -> None:
    if str(output) == "-":
        raise InputError("--check needs a file", "leave out --output -")
    if not output.is_file():
        raise LabError(f"{output} is missing", "write it with `lab render`")
    found = recorded(output)
    # What nobody asked for is as the file has it.
    mode = found.mode if found and gpus == AUTO else gpus
    run = override or (found.run if found and found.run else "")
    version = tensorflow or (found.tensorflow if found else None)
    version = version if version in IMAGES else None
    text = render_file(path, mode, tensorflow=version, run=run, relative_to=output.parent)
    diff = stale_diff(output, text)
    if diff:
        sys.stdout.write(diff)
        raise LabError(f"{output} is stale", f"write it anew with `lab render {path}`")
    notify(f"{output} is up to date")
