"""`lab render`.

Examples:
    # for the GPUs of this host
    lab render
    # from another config, printed to stdout
    lab render clusters/book.yaml --output -
    # print a diff and exit with code 1 if the file is out of date
    lab render --check
    # on Engine 28 or later: tasks cannot reach this host
    lab render -o network=isolated
    # a batch script for Slurm, cluster.sbatch
    lab render clusters/slurm.yaml --target slurm -o time=2h
    # objects for Kubernetes, cluster.k8s.yaml: a JobSet
    lab render clusters/slurm.yaml --target kubernetes -o image=registry.example/lab:cuda
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

from lab.backends.base import Backend
from lab.backends.build_context import prepare_context
from lab.backends.names import AUTO, COMPOSE, capabilities, targets
from lab.backends.options import changed, text_of
from lab.backends.registry import backend_named, options_of
from lab.backends.rendered_file import (
    Rendering,
    RenderOptions,
    current_text,
    is_rendered,
    planned_run,
    read_state,
    run_override,
    runtime_of,
    stale_diff,
    write,
)
from lab.backends.selection import Folders, named
from lab.base.converters import OneOf, text
from lab.base.errors import InputError, LabError
from lab.base.files import check_output
from lab.base.log import LOG
from lab.base.options import Flag, ProgramArguments, Switch, given_flags, verb
from lab.cluster.config import Cluster, load_cluster
from lab.cluster.placement.place import Placed
from lab.cluster.placement.plan import PlannedRun
from lab.cluster.project import AnyPath, cluster_path, own_root
from lab.protocol.runtimes import RUNTIMES, TENSORFLOW
from lab.runner.planning import make_plan, report_warnings
from lab.verbs.common_options import (
    ClusterArgument,
    ClusterFile,
    Force,
    Framework,
    GpuMode,
    OwnOptions,
)
from lab.verbs.printing import Note, Shown, prints

_ENGINE_S: Final = 5.0
"""Seconds that the engine has to list containers."""


@dataclass(frozen=True, slots=True, repr=False)
class Rendered(Shown):
    """A rendered config.

    Attributes:
        text: The text of the file.
        placed: The plan.
        cluster: The config.
        run: The run that the tasks train at their start; None: they wait for runs.
        backend: The backend that rendered it.
        output: The file; `-`: none was written.
        diff: With `check`: how the file differs from the text; "" if it is up to date.
        again: With `check`: the command that writes the file again.
    """

    text: str
    placed: Placed
    cluster: Cluster
    run: PlannedRun | None
    backend: Backend
    output: str = "-"
    diff: str = ""
    again: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the file, and with `check`, how it differs."""
        return {"file": self.output, "text": self.text, "diff": self.diff}

    def _shown(self) -> Iterator[str]:
        """Yield the file or its difference; else what it is for."""
        if self.diff or (self.output == "-" and not self.again):
            yield (self.diff or self.text).removesuffix("\n")
        elif self.again:
            yield Note(f"{self.output} is up to date")
        else:
            trains = f"; it trains {self.run.arguments[0]}" if self.run else ""
            hint = self.backend.start_hint(Path(self.output))
            yield Note(f"wrote {self.output}; {hint}{trains}")

    def check(self) -> None:
        """Check that the file is up to date.

        Raises:
            LabError: It is not.
        """
        if self.diff:
            raise LabError(f"{self.output} is out of date", f"write it again with `{self.again}`")


@verb
def render(  # noqa: D417  (the decorator adds those of common_options)
    file: ClusterArgument = None,
    *,
    cluster: ClusterFile = None,
    target: Annotated[str, Flag(parse=OneOf(targets), shows="TARGET")] = COMPOSE,
    option: OwnOptions = (),
    check: Annotated[bool, Switch()] = False,
    gpus: GpuMode = AUTO,
    explain: Annotated[bool, Switch()] = False,
    strict: Annotated[bool, Switch()] = False,
    framework: Framework = None,
    output: Annotated[AnyPath | None, Flag(parse=text, shows="FILE")] = None,
    force: Force = False,
    run: Annotated[str | None, Flag(shows="EXPERIMENT")] = None,
    rest: Annotated[
        tuple[str, ...], ProgramArguments("flags of the experiment, after --", verbatim=True)
    ] = (),
) -> Rendered:
    """Render a config for a backend.

    Args:
        target: The backend to write a file for.
        check: Write no file; print a diff and exit with code 1 if the file is out of date.
        explain: Explain which GPUs each node gets, and which CPUs each task gets.
        strict: Fail if GPUs are busy or too old, or if the host has less than the config asks for.
        output: The file to write, or - for stdout (default: that of the target).
        run: The experiment that the tasks train at the start, or none (default: `run:` of FILE).
        rest: The flags of the experiment: `["--epochs=2"]`.

    Raises:
        InputError: An argument is invalid, or a file would be replaced that lab did not write.
        ConfigError: The config has errors.
        LabError: The config does not fit the host, or `strict` refuses it.
    """
    given = locals()
    path = cluster_path(given["cluster"], given["file"], shipped=False)
    options = RenderOptions(gpus, framework, run_override(run, rest), options_of(target, option))
    written = given["output"] or default_output(target, existing=check)
    _refuse(given)
    if check:
        return _compared(path, target, written, options)
    if written != "-":
        check_output("--output", Path(written), is_rendered, force=force)
    rendered = render_config(
        path,
        target,
        options,
        relative_to=Path() if written == "-" else Path(written).parent,
        root=own_root(path),
        explain=explain,
        folders=_folders_of_containers if target == COMPOSE else None,
    )
    report_warnings(rendered.placed, rendered.cluster, gpus, strict=strict)
    for notice in rendered.backend.render_notices(rendered.run):
        LOG.info(notice)
    if written != "-":
        if capabilities(target).containers:
            prepare_context(own_root(path))
        write(Path(written), rendered.text)
    return replace(rendered, output=str(written))


def _refuse(given: Mapping[str, Any]) -> None:
    """Refuse options without an effect."""
    target = given["target"]
    of_gpus = given_flags(render, given, "explain", "strict")
    if of_gpus and not capabilities(target).host_gpus:
        raise InputError(f"--target {target} has no {of_gpus[0]}", f"leave out {of_gpus[0]}")
    for flag in of_gpus if given["check"] else ():
        # The result must not depend on which GPUs are in use now.
        raise InputError(f"--check only compares, so {flag} has no effect", f"leave out {flag}")


def _compared(path: Path, target: str, output: str, options: RenderOptions) -> Rendered:
    """Compare a file with what is rendered now."""
    file = Path(output)
    if output == "-":
        raise InputError("--check needs a file", "leave out --output -")
    if not file.is_file():
        raise LabError(f"{file} is missing", "write it with `lab render`")
    options, current = with_recorded(options, file, target), current_text(file)

    def in_file(project: str) -> list[str]:
        return [""] if f"\nname: {project}\n" in current else []

    rendered = render_config(
        path, target, options, relative_to=file.parent, root=own_root(path), folders=in_file
    )
    again = command_of(path, target, output, options)
    return replace(rendered, output=output, diff=stale_diff(file, rendered.text), again=again)


def _folders_of_containers(project: str) -> list[str]:
    """Return the directories of a project's containers; none if no engine answers.

    `docker compose up` would replace these containers. docker-py takes longer to import.
    """
    shown = '{{.Label "com.docker.compose.project.working_dir"}}'
    command = ["docker", "ps", "--all", f"--filter=label=lab.project={project}", "--format", shown]
    try:
        listed = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_ENGINE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return list(filter(None, listed.stdout.splitlines()))


def render_config(
    path: Path,
    target: str,
    options: RenderOptions,
    *,
    relative_to: Path,
    root: Path,
    explain: bool = False,
    folders: Folders | None = None,
) -> Rendered:
    """Render a config.

    Args:
        path: The path of the config.
        target: The backend's name.
        options: The options.
        relative_to: The directory of the rendered file. All paths in the file are relative to it,
            so that the current directory does not change the file.
        root: The project's directory.
        explain: Report the reason for each node's GPUs and each task's CPUs.
        folders: Returns the directories of the environments with a name; None: the name in the
            config stays.

    Raises:
        LabError: The config cannot be read, has errors, does not fit the host, or has values that
            the backend cannot have.
    """
    backend = backend_named(target, options.own)
    cluster = load_cluster(path)
    run = planned_run(cluster, options.run)
    runtime = runtime_of(run, options.runtime, TENSORFLOW.name)
    placed = make_plan(
        cluster,
        options.gpus,
        runtime=runtime,
        backend=target,
        own=options.own,
        file=path,
        explain=explain,
    )
    if folders is not None:
        placed = replace(placed, plan=named(placed.plan, root, folders))
    rendering = Rendering.at(relative_to, path, root, run, options.run)
    return Rendered(backend.render(placed.plan, rendering), placed, cluster, run, backend)


def recorded(file: Path, target: str) -> RenderOptions | None:
    """Return the options in a rendered file's header; None if it is missing or has none."""
    return read_state(current_text(file), capabilities(target).options)


def with_recorded(options: RenderOptions, file: Path, target: str) -> RenderOptions:
    """Return the options for a comparison: those that are not given are taken from the file."""
    others = recorded(file, target) or RenderOptions()
    return RenderOptions(
        others.gpus if options.gpus == AUTO else options.gpus,
        options.runtime or (others.runtime if others.runtime in RUNTIMES else None),
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
    existing_files = [each for each in files if Path(each).exists()]
    return existing_files[0] if existing and existing_files else files[0]


def command_of(path: Path, target: str, output: str, options: RenderOptions) -> str:
    """Return the command that writes a file with these options."""
    own = changed(capabilities(target).options, options.own)
    switches = {
        f"--target={target}": target != COMPOSE,
        **{f"-o={name}={text_of(value)}": True for name, value in own.items()},
        f"--gpus={options.gpus}": options.gpus in {"index", "none"},
        f"--framework={options.runtime}": options.runtime not in {None, TENSORFLOW.name},
        f"--output={output}": output != default_output(target, existing=False),
    }
    name, *flags = shlex.split(options.run) or [""]
    words = [str(path), *(flag for flag, used in switches.items() if used)]
    words += [f"--run={name}"] if name else []
    return f"lab render {shlex.join([*words, *(['--', *flags] if flags else [])])}"


command = prints(render)
