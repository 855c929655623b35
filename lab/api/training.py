"""Train from Python: `lab run` without its command line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from lab.api.args import (
    check_backend,
    check_main_thread,
    flag_meanings,
    policy,
    program_args,
    schedule,
)
from lab.api.args import faults as read_faults
from lab.api.brief_view import BriefView
from lab.api.planning import AnyPath, project
from lab.api.progress import discard
from lab.api.results import Run, runs_path
from lab.backends.names import AUTO, LOCAL
from lab.config import Cluster
from lab.console import Output, output
from lab.errors import InputError
from lab.formatting import seconds, whole
from lab.formatting import share as percentage
from lab.records.results import is_number
from lab.run.gpu_metrics import sampled
from lab.run.view import View
from lab.service.batches import NoticeView
from lab.service.outcome import check_succeeded
from lab.service.run import RunInterruptedError, RunOptions, execute, prepare_run
from lab.service.unread_lines import unread_notice
from lab.store.directory import RunDir
from lab.store.run_info import RunInfo
from lab.store.summary import Summary
from lab.volume import STALL_S, RunSpec


def run(  # longer than 60 lines: each option has an argument and a line of help
    experiment: AnyPath,
    *,
    cluster: Cluster | AnyPath | None = None,
    backend: str = LOCAL,
    gpus: str = AUTO,
    start: str | Mapping[str, str] | None = None,
    faults: str | Sequence[str] = (),
    on_failure: str | None = None,
    stall: float = STALL_S,
    max_time: float = 0.0,
    ready_within: float | None = None,
    record: str = "",
    data_dir: AnyPath | None = None,
    runs_dir: AnyPath | None = None,
    keep: bool = False,
    share: bool = False,
    wait: bool = False,
    check: bool = True,
    quiet: bool = False,
    module: bool = False,
    args: str | Sequence[str] = (),
    map: str | Mapping[str, str] = "",  # noqa: A002  (the name of the option)
    **flags: object,
) -> Run:
    r"""Train an experiment and wait until it has ended.

    Ctrl-C cancels the run, collects its files, and removes the environment that it booted.

    Args:
        experiment: An experiment (`lab experiments` lists them), the path of your own program, or a
            program for each task: `worker-0=a.py,worker-1=b.py`.
        cluster: The config, or its file; None: the project's `cluster.yaml`.
        backend: A backend, such as `local` or `compose` (`lab run --help` lists them), or `auto`.
        gpus: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        start: Tasks that start later: `{"worker-1": "10s"}`, or `"worker-1: after 500 steps"`.
        faults: Faults to inject: `["kill worker-1 after 500 steps"]`.
        on_failure: When a task fails: `fail`, `restart`, `restart:5` or `continue`; None: the
            experiment's policy.
        stall: Seconds without a step after which the run fails; 0: no limit.
        max_time: Seconds after which the run saves a checkpoint and ends as `cancelled`; 0: no
            limit.
        ready_within: Seconds within which every program must be ready; None: the default.
        record: A regular expression that makes records of the lines of your own program:
            `r"it (?P<step>\d+), err (?P<loss>\S+)"`. Its groups are named `step`, `global_step`,
            `local_step`, `epoch`, `loss` or `accuracy`.
        data_dir: Your own data, in the four IDX files; None: the shipped data.
        runs_dir: The run store; None: `LAB_RUNS_DIR`, or `./runs`.
        keep: Keep the environment that this run boots: the next run starts faster.
        share: Allow GPUs that another environment of the lab uses.
        wait: Wait for other runs of this environment; otherwise they are an error.
        check: Whether a run that fails, or has unexpected results, is an error.
        quiet: Print nothing but warnings.
        module: Start a module as `python -m` does: `run("trainer.task", module=True)`. The current
            directory contains its packages.
        args: One argument or several for a program of your own. `{job}`, `{index}` and
            `{JOB_hosts}` stand for the task's job, its index, and the addresses of a job.
        map: Flags of a program of your own, and what they mean: `{"task_type": "job_name"}`.
        **flags: Flags of the program: `epochs=3`, `learning_rate=0.1`.

    Returns:
        The run, which has ended.

    Raises:
        InputError: An argument is invalid; nothing was started.
        LabError: The run could not be executed; with `check`, also: it did not succeed.
        KeyboardInterrupt: The user interrupted the run; its files are collected.
    """
    check_main_thread("run")
    check_backend(backend)
    for name, value in (
        ("stall", stall),
        ("max_time", max_time),
        ("ready_within", ready_within),
    ):
        if value is not None and not (is_number(value) and math.isfinite(value) and value >= 0):
            fix = "use a number such as 30, or 0 for no limit"
            raise InputError(f"{name}: {value!r} is not a number of seconds", fix)
    own_args = (args,) if isinstance(args, str) else args
    spec = RunSpec(
        str(experiment),
        args=(*program_args(str(experiment), flags, module=module), *own_args),
        stall_s=stall,
        max_time_s=max_time,
        start=schedule(start),
        module=module,
        map=flag_meanings(map),
        record=record,
    )
    options = RunOptions(
        spec=spec,
        backend=backend,
        gpus=gpus,
        share=share,
        data_dir=None if data_dir is None else str(data_dir),
        keep=keep,
        wait=wait,
        ready_s=ready_within,
        on_failure=policy(on_failure),
        faults=read_faults(faults),
    )
    out = output()
    notify = out.notify
    report = discard if quiet else notify
    prepared = prepare_run(
        options, project(cluster), runs_path(runs_dir), notify=report, warn=notify
    )
    try:
        made, summary = execute(
            prepared, view=partial(_view, out=out, quiet=quiet), notify=report, warn=notify
        )
    except RunInterruptedError as interrupt:
        made = interrupt.run
        notify(f"run {made.run_id} was interrupted; its collected files are in {made.path}")
        raise
    report(_line(summary))
    if check:
        check_succeeded(made, summary, notify)
    elif notice := unread_notice(made, summary):
        notify(notice)
    return Run(made)


@contextmanager
def _view(run: RunDir, info: RunInfo, *, out: Output, quiet: bool) -> Iterator[View]:
    """Show a run, and sample its GPUs meanwhile."""
    view = NoticeView(out.notify) if quiet else BriefView(info, out)
    try:
        with sampled(run, info, view):
            yield view
    finally:
        out.draw("")


def _line(summary: Summary) -> str:
    """Return a summary in one line."""
    parts = [f"run {summary.run_id}: {summary.state}"]
    if summary.wall_s is not None:
        parts[0] += f" after {seconds(summary.wall_s)}"
    if summary.global_step is not None:
        parts.append(f"global step {whole(summary.global_step)}")
    if summary.accuracy is not None:
        parts.append(f"accuracy {percentage(summary.accuracy)}")
    return ", ".join(parts)
