"""`lab render`.

Examples:
    # with the GPUs of this host
    lab render
    # from another config, printed to stdout
    lab render clusters/book.yaml --output -
    # print a diff and exit with code 1 if the file is out of date
    lab render --check
    # on Engine 28 or later: tasks cannot reach this host
    lab render --network isolated
    # also draw the cluster
    lab render --picture cluster.svg
    # a batch script for Slurm, cluster.sbatch
    lab render clusters/slurm.yaml --target slurm --time 2h
    # its tasks run in an Apptainer image
    lab render clusters/slurm.yaml --target slurm --container lab.sif
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, TypeVar

from lab.backends.names import AUTO
from lab.config import load_cluster
from lab.console import notify
from lab.errors import InputError, LabError
from lab.experiments.faults import parse
from lab.experiments.registry import EXPERIMENTS
from lab.options import Flag, ProgramArguments, Switch
from lab.options.durations import duration
from lab.options.shared import (
    ClusterArgument,
    ClusterFile,
    Explain,
    Force,
    GpuMode,
    Strict,
    Tensorflow,
)
from lab.options.types import one_of, text
from lab.outputs import check_output
from lab.placement.plan import Plan, PlannedRun
from lab.plots import is_svg
from lab.project import cluster_path, find_root
from lab.render import (
    DEFAULTS,
    GPUS_BY,
    NETWORKS,
    RenderOptions,
    is_rendered,
    planned_run,
    render_file,
    render_options,
    render_plan,
    run_override,
    stale_diff,
    tensorflow_version,
    write,
)
from lab.render.slurm import (
    SLURM_DEFAULTS,
    SlurmOptions,
    container_image,
    render_slurm_file,
    slurm_options,
    time_limit,
)
from lab.run.planning import make_plan, report_warnings
from lab.text import short
from lab.tf_versions import CURRENT, IMAGES

COMPOSE: Final = "compose"
SLURM: Final = "slurm"
OUTPUTS: Final = {COMPOSE: "compose.yaml", SLURM: "cluster.sbatch"}
"""The file that each target writes by default; git ignores it."""

SAMPLE: Final = "docker-compose.yml"
"""The file that `docker compose` uses where no compose.yaml is: the one for the shipped config."""

Options = TypeVar("Options")


def command(  # longer than 60 lines: the parameters are the command line
    *,
    file: ClusterArgument = None,
    cluster: ClusterFile = None,
    check: Annotated[
        bool, Switch("write no file; print a diff and exit with code 1 if the file is out of date")
    ] = False,
    gpus: GpuMode = AUTO,
    gpus_by: Annotated[
        str | None,
        Flag("how to request GPUs: nvidia (default) or cdi", one_of(*GPUS_BY), shows="FORM"),
    ] = None,
    network: Annotated[
        str | None,
        Flag(
            "portable (default), or isolated: tasks cannot reach this host (Engine 28 or later)",
            one_of(*NETWORKS),
            shows="KIND",
        ),
    ] = None,
    explain: Explain = False,
    strict: Strict = False,
    tensorflow: Tensorflow = None,
    target: Annotated[
        str,
        Flag("compose, or slurm: a batch script", one_of(*OUTPUTS), shows="TARGET"),
    ] = COMPOSE,
    time: Annotated[
        float | None, Flag("slurm: the job's time limit (default: 1h)", duration, shows="TIME")
    ] = None,
    no_het: Annotated[
        bool, Switch("slurm: request all nodes in the size of the largest, as one component")
    ] = False,
    container: Annotated[
        str | None,
        Flag("slurm: run the tasks in this Apptainer image", text, shows="IMAGE"),
    ] = None,
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
            "what `docker compose up` trains: an experiment, or none (default: `run:` of FILE)",
            shows="EXPERIMENT",
        ),
    ] = None,
    rest: Annotated[
        tuple[str, ...], ProgramArguments("flags of the experiment, after --", verbatim=True)
    ] = (),
) -> None:
    """Render the config as a compose file, or as a batch script for Slurm."""
    path = cluster_path(cluster, file)
    override = run_override(run, rest)
    output = output or _default_output(target, check=check)
    only = {
        COMPOSE: {
            "--time": time is not None,
            "--no-het": no_het,
            "--container": container is not None,
        },
        SLURM: {
            "--gpus-by": gpus_by is not None,
            "--network": network is not None,
            "--explain": explain,
            "--strict": strict,
            "--picture": picture is not None,
            f"--gpus {gpus}": gpus not in {AUTO, "none"},
        },
    }
    for flag in (flag for flag, given in only[target].items() if given):
        raise InputError(f"--target {target} has no {flag}", f"leave out {flag}")
    if target == SLURM:
        script = (_recorded(Path(output), slurm_options) if check else None) or SLURM_DEFAULTS
        script = SlurmOptions(
            script.gpus and gpus != "none",
            script.het and not no_het,
            script.time_s if time is None else time_limit(time),
            tensorflow or script.tensorflow,
            override or script.run,
            script.container if container is None else container_image(container),
        )
        _slurm(path, output, script, check=check, force=force)
        return
    refused = {"--explain": explain, "--strict": strict, "--picture": picture is not None}
    if check and any(refused.values()):
        # The result must not depend on which GPUs are in use now.
        flag = next(name for name, given in refused.items() if given)
        raise InputError(
            f"--check only compares, so that {flag} has no effect", f"leave out {flag}"
        )
    # With --check, options that the user did not give are taken from the file.
    others = (_recorded(Path(output), render_options) if check else None) or DEFAULTS
    options = RenderOptions(
        others.mode if gpus == AUTO else gpus,
        tensorflow or (others.tensorflow if others.tensorflow in IMAGES else None),
        override or others.run,
        gpus_by or others.gpus_by,
        network or others.network,
    )
    if check:
        _check(path, Path(output), options)
        return
    if output != "-":
        check_output("--output", Path(output), is_rendered, force=force)
    if picture is not None:
        check_output("--picture", Path(picture), is_svg, force=force)
        if output != "-" and Path(picture).resolve() == Path(output).resolve():
            raise InputError("--picture and --output name the same file", "name another file")
    config, root = load_cluster(path), find_root(path)
    trained = planned_run(config, override)
    version = tensorflow_version(trained, tensorflow, CURRENT.tensorflow)
    reasons = notify if explain else None
    placed = make_plan(config, gpus, tensorflow=version, explain=reasons)
    report_warnings(placed, config, gpus, notify, strict=strict)
    for fault in trained.faults if trained else ():
        if parse(fault).kind.on_network:
            notify(f"warning: `docker compose up` ignores the fault {fault}, which needs `lab run`")
    if picture is not None:
        _draw(placed.plan, trained, Path(picture))
    if output == "-":
        sys.stdout.write(render_plan(placed.plan, path, trained, options, root=root))
    else:
        written = Path(output)
        text = render_plan(
            placed.plan, path, trained, options, relative_to=written.parent, root=root
        )
        write(written, text)
        trains = f"; it trains {trained.arguments[0]}" if trained else ""
        notify(f"wrote {output}; boot it with {_boot_command(written)}{trains}")


def _slurm(path: Path, output: str, options: SlurmOptions, *, check: bool, force: bool) -> None:
    """Write a batch script, or compare one."""
    file = Path(output)
    if output == "-":
        sys.stdout.write(render_slurm_file(path, options, notify=notify))
        return
    if check:
        text = render_slurm_file(path, options, relative_to=file.parent)
        _compare(file, text, _slurm_command(path, output, options))
        return
    check_output("--output", file, is_rendered, force=force)
    write(file, render_slurm_file(path, options, relative_to=file.parent, notify=notify))
    notify(f"wrote {output}; submit it in the project's directory with `sbatch {output}`")


def _slurm_command(path: Path, output: str, options: SlurmOptions) -> str:
    """The command that writes a batch script with these options."""
    given = {
        "--target=slurm": True,
        "--gpus=none": not options.gpus,
        "--no-het": not options.het,
        f"--time={options.time_s:.0f}s": options.time_s != SLURM_DEFAULTS.time_s,
        f"--container={options.container}": options.container,
        f"--output={output}": output != OUTPUTS[SLURM],
    }
    return _command(path, given, options.run)


def _compose_command(path: Path, output: Path, options: RenderOptions) -> str:
    """The command that writes a compose file with these options."""
    given = {
        f"--gpus-by={options.gpus_by}": options.gpus_by != DEFAULTS.gpus_by,
        f"--network={options.network}": options.network != DEFAULTS.network,
        f"--gpus={options.mode}": options.mode in {"index", "none"},
        f"--tensorflow={options.tensorflow}": options.tensorflow not in {None, CURRENT.tensorflow},
        f"--output={output}": output != Path(OUTPUTS[COMPOSE]),
    }
    return _command(path, given, options.run)


def _command(path: Path, given: Mapping[str, object], run: str) -> str:
    """Return `lab render` with the used options, and with `--run` and its flags after `--`."""
    name, *flags = shlex.split(run) or [""]
    words = [str(path), *(flag for flag, used in given.items() if used)]
    words += [f"--run={name}"] if name else []
    return f"lab render {shlex.join([*words, *(['--', *flags] if flags else [])])}"


def _draw(plan: Plan, run: PlannedRun | None, picture: Path) -> None:
    # Imported here: importing matplotlib takes a second, and only a picture needs it.
    from lab.plots.cluster import draw_shape  # noqa: PLC0415
    from lab.plots.shape import of_plan  # noqa: PLC0415
    from lab.plots.style import svg  # noqa: PLC0415

    experiment = EXPERIMENTS[run.arguments[0]] if run else None
    write(picture, svg(draw_shape(of_plan(plan, experiment))).decode(), "--picture")
    notify(f"wrote {short(str(picture))}")


def _default_output(target: str, *, check: bool) -> str:
    """The file to write, or with `--check` the file that `docker compose` uses here."""
    output = OUTPUTS[target]
    if check and target == COMPOSE and not Path(output).exists() and Path(SAMPLE).exists():
        return SAMPLE
    return output


def _boot_command(file: Path) -> str:
    default = file == Path(OUTPUTS[COMPOSE])
    return "`docker compose up`" if default else f"`docker compose --file {file} up`"


def _recorded(output: Path, read: Callable[[Path], Options | None]) -> Options | None:
    """The options of an existing file; None if it has no header."""
    if str(output) == "-":
        raise InputError("--check needs a file", "leave out --output -")
    if not output.is_file():
        raise LabError(f"{output} is missing", "write it with `lab render`")
    return read(output)


def _check(path: Path, output: Path, options: RenderOptions) -> None:
    text = render_file(path, options, relative_to=output.parent, root=find_root(path))
    _compare(output, text, _compose_command(path, output, options))


def _compare(output: Path, text: str, again: str) -> None:
    if diff := stale_diff(output, text):
        sys.stdout.write(diff)
        raise LabError(f"{output} is out of date", f"write it again with `{again}`")
    notify(f"{output} is up to date")
