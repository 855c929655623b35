"""`lab run EXPERIMENT`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from lab.backends.choose import AUTO, Choice, backends, check_same, choose
from lab.cli.arguments import Flag, Rest, Switch, Word
from lab.cli.options import BackendName, ClusterFile, GpuMode, RunsDir
from lab.cli.output import say
from lab.cluster import load_cluster
from lab.errors import InterruptError, LabError
from lab.gpus import take_inventory
from lab.plan import place
from lab.run import project
from lab.run.directory import RunDir, runs_dir
from lab.run.homecoming import bring_leftovers_home
from lab.run.launch import Order, conduct, prepare
from lab.run.summary import Summary, summarize
from lab.run.view import result, show, watching
from lab.task.experiments import EXPERIMENTS, ProgramFlag
from lab.task.protocol import State
from lab.task.text import visible

LOG_LINES = 10
"""So many last lines of a failed task are shown."""


def program_flags(experiment: str | None) -> Mapping[str, ProgramFlag]:
    """The flags of an experiment's program; of all of them where none is named."""
    if experiment is not None and experiment in EXPERIMENTS:
        return EXPERIMENTS[experiment].flags
    return {name: flag for each in EXPERIMENTS.values() for name, flag in each.flags.items()}


def command(
    *,
    experiment: Annotated[str, Word("an experiment; `lab experiments` lists them")],
    backend: BackendName = AUTO,
    cluster: ClusterFile = None,
    gpus: GpuMode = AUTO,
    data_dir: Annotated[
        str | None, Flag("your own data, in the four IDX files", shows="DIR")
    ] = None,
    keep: Annotated[bool, Switch("leave the environment up that this run boots")] = False,
    json: Annotated[bool, Switch("print the summary as the last line of stdout")] = False,
    runs_dir_: RunsDir = None,
    rest: Annotated[
        tuple[str, ...], Rest("flags of the programs, see `lab experiments`", program_flags)
    ] = (),
) -> None:
    """Train an experiment from its start to its end."""
    wanted = project.experiment(experiment)
    path = project.cluster_path(cluster)
    described = load_cluster(path)
    root = project.find_root(path)
    project.check_jobs(wanted, described, path, root)
    project.check_program(wanted, root)
    data = project.check_data_dir(data_dir)
    home = runs_dir(runs_dir_)
    plan = place(described, take_inventory(gpus, described))
    chosen = choose(backend, plan, root, backends(), say)
    order = Order(
        experiment=wanted,
        argv=(*wanted.args, *rest),
        plan=plan,
        root=root,
        cluster_file=path,
        data_dir=project.data_dir_inside(data, chosen.backend.name, root),
    )
    if chosen.environment is not None:
        check_same(chosen.environment, plan.cluster_sha256, str(path))
    else:
        bring_leftovers_home(chosen.backend, plan.name, home, say)
        for notice in plan.notices:
            say(notice)
    run = prepare(order, home)
    say(f"run {run.run_id}: {run.path}")
    try:
        summary = _conduct(run, order, chosen, keep=keep)
    except KeyboardInterrupt:
        _show(summarize(run), json=json)
        raise InterruptError(
            f"run {run.run_id} was interrupted", f"see it again with `lab show {run.run_id}`"
        ) from None
    _show(summary, json=json)
    _judge(run, summary)


def _conduct(run: RunDir, order: Order, chosen: Choice, *, keep: bool) -> Summary:
    return conduct(
        run,
        boot=lambda: chosen.backend.up(order.plan, root=order.root, say=say),
        found=chosen.environment,
        keep=keep,
        view=lambda: watching(run.read),
        say=say,
    )


def _show(summary: Summary, *, json: bool) -> None:
    """Print what a run came to; as JSON in the last line of stdout where that is asked for."""
    show(result(summary), to_stderr=json)
    if json:
        print(summary.to_json())
    sys.stdout.flush()


def _judge(run: RunDir, summary: Summary) -> None:
    """End the command with exit code 1 if the run did not succeed, and show why."""
    if summary.state == State.SUCCEEDED:
        return
    for task in summary.tasks:
        if task.state in {State.FAILED, State.LOST}:
            for line in _last_lines(run.log(task.task)):
                say(f"{task.task}  | {visible(line)}")
    reason = f" ({summary.reason})" if summary.reason else ""
    raise LabError(
        f"run {run.run_id} {summary.state}{reason}", f"all that its tasks said is in {run.path}"
    )


def _last_lines(path: Path) -> list[bytes]:
    """The last lines of a log, however long it is."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - (1 << 16)))
        return file.read().splitlines()[-LOG_LINES:]
