r"""`lab run EXPERIMENT`.

PROGRAM may name a program for each task: worker-0=a.py,worker-1=b.py. All of them
must be in one directory. A service, such as ps-0, may be left out.

Examples:
    # three asynchronous workers
    lab run async --epochs 2
    # without containers
    lab run sync --cluster clusters/book.yaml --backend local --epochs 1
    # restart a worker that fails
    lab run async --on-failure restart --fault "kill worker-1 after 500 steps"
    # an unchanged program with its job and index as its arguments
    lab run my_program.py -- {job} {index}
    # a program whose lines `lab` does not know: `it 10, err 0.5`
    lab run mine.py --record 'it (?P<step>\d+), err (?P<loss>\S+)'
    # a program that `python -m trainer.task` starts
    lab run -m trainer.task -- --epochs 2
    # an unchanged program from a book of 2017
    lab run --listing printed.py --cluster clusters/book.yaml
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Final

from lab.backends.names import AUTO
from lab.cli.output import print_summary
from lab.cli.run_view import followed_view
from lab.config.start_schedule import parse_start
from lab.console import notify
from lab.errors import InterruptError, LabError
from lab.experiments.faults import Fault
from lab.experiments.policy import Policy, parse_policy
from lab.experiments.registry import EXPERIMENTS, ProgramFlag
from lab.options import Argument, Flag, ProgramArguments, RepeatedFlag, Switch
from lab.options.durations import duration
from lab.options.shared import BackendName, ClusterFile, Explain, GpuMode, RunsDir, Share, Strict
from lab.options.types import one_of
from lab.program.cluster_arguments import parse_map
from lab.program.own import names_a_program
from lab.run.fault_injection import parse_faults
from lab.service.next_command import next_command
from lab.service.outcome import check_succeeded
from lab.service.planning import Project
from lab.service.run import RunInterruptedError, RunOptions, execute, prepare_run
from lab.store.directory import RunDir, runs_dir
from lab.store.summarize import summarize
from lab.store.summary import Summary
from lab.tf_versions import CURRENT, IMAGES, TF1
from lab.volume import STALL_S, RunSpec

FURTHER_FLAGS: Final = (
    "Each experiment has further flags: `lab run async --help` lists those of async.\n"
    "`lab experiments` lists the experiments."
)
"""The lines of the help about the flags of programs."""


def program_flags(experiment: str | None) -> Mapping[str, ProgramFlag]:
    """Return the flags of an experiment's program; without an experiment, those of all programs."""
    if experiment is not None and (names_a_program(experiment) or "." in experiment):
        return {}
    if experiment is not None and experiment in EXPERIMENTS:
        return EXPERIMENTS[experiment].flags
    return {name: flag for each in EXPERIMENTS.values() for name, flag in each.flags.items()}


def command(  # longer than 60 lines: the parameters are the command line
    *,
    experiment: Annotated[
        str,
        Argument(
            "an experiment (`lab experiments` lists them), or the path of your own program",
            shows="EXPERIMENT|PROGRAM",
        ),
    ],
    backend: BackendName = AUTO,
    cluster: ClusterFile = None,
    gpus: GpuMode = AUTO,
    explain: Explain = False,
    strict: Strict = False,
    share: Share = False,
    data_dir: Annotated[
        str | None, Flag("a directory with your own data: the four IDX files", shows="DIR")
    ] = None,
    keep: Annotated[bool, Switch("keep the environment that this run boots")] = False,
    detach: Annotated[
        bool, Switch("return when the run has started; `lab attach` follows it", short="-d")
    ] = False,
    wait: Annotated[bool, Switch("wait until earlier runs in the environment have ended")] = False,
    stall: Annotated[
        float,
        Flag("fail after this time without a step: 90s, 5m; 0: never", duration, shows="TIME"),
    ] = STALL_S,
    max_time: Annotated[
        float,
        Flag("save a checkpoint and end after this time: 10m; 0: no limit", duration, shows="TIME"),
    ] = 0.0,
    on_failure: Annotated[
        Policy | None,
        Flag(
            "if a task fails: fail (the default), restart, restart:N or continue",
            parse_policy,
            shows="WHAT",
        ),
    ] = None,
    start: Annotated[
        Mapping[str, str] | None,
        Flag(
            "tasks that start later: worker-1: 10s; worker-2: after 500 steps",
            parse_start,
            shows="SCHEDULE",
        ),
    ] = None,
    ready_within: Annotated[
        float | None,
        Flag("fail if a program is not ready in this time (default: 120s)", duration, shows="TIME"),
    ] = None,
    fault: Annotated[
        tuple[Fault, ...] | None,
        Flag(
            "faults to inject: kill worker-1 after 500 steps; cut:5s tf2",
            parse_faults,
            shows="FAULTS",
        ),
    ] = None,
    module: Annotated[
        bool, Switch("run a module of the current directory, as `python -m` does", short="-m")
    ] = False,
    listing: Annotated[
        bool, Switch("run your program unchanged with TensorFlow 1's API, as printed in 2017")
    ] = False,
    faithful: Annotated[
        bool, Switch("with --listing: keep 30-second polls, and resume from old checkpoints")
    ] = False,
    mend: Annotated[
        bool, Switch("with --listing: fix the known bugs of printed synchronous programs")
    ] = False,
    record: Annotated[
        str,
        Flag(
            "how to read your program's lines: groups step, global_step, local_step, epoch, loss,"
            " accuracy",
            shows="REGEX",
        ),
    ] = "",
    tensorflow: Annotated[
        str | None,
        Flag(
            f"for your own program: {CURRENT.tensorflow}, or {TF1.tensorflow} with Estimator and"
            " Horovod",
            one_of(*IMAGES),
            shows="VERSION",
        ),
    ] = None,
    map_: Annotated[
        tuple[Mapping[str, str], ...],
        RepeatedFlag(
            "for your own program: the flag of its job_name, task_index or JOB_hosts",
            parse_map,
            shows="FLAG=MEANING",
        ),
    ] = (),
    resume: Annotated[
        str | None, Flag("continue from the checkpoints of this run", shows="RUN")
    ] = None,
    json: Annotated[bool, Switch("print the summary as JSON, as the last line of stdout")] = False,
    runs_dir_: RunsDir = None,
    rest: Annotated[
        tuple[str, ...],
        ProgramArguments(FURTHER_FLAGS, program_flags),
    ] = (),
) -> None:
    """Train an experiment, collect it, and print its results."""
    spec = RunSpec(
        experiment,
        args=rest,
        stall_s=stall,
        max_time_s=max_time,
        start=start or {},
        module=module,
        listing=listing,
        faithful=faithful,
        mend=mend,
        map={flag: meaning for each in map_ for flag, meaning in each.items()},
        record=record,
    )
    options = RunOptions(
        spec=spec,
        backend=backend,
        gpus=gpus,
        explain=explain,
        strict=strict,
        share=share,
        data_dir=data_dir,
        keep=keep,
        detach=detach,
        wait=wait,
        ready_s=ready_within,
        on_failure=on_failure,
        faults=fault or (),
        tensorflow=tensorflow,
        resume=resume,
    )
    prepared = prepare_run(options, Project.load(cluster), runs_dir(runs_dir_), notify=notify)
    store = ["--runs-dir", runs_dir_] if runs_dir_ else []

    def hint(run: RunDir, summary: Summary, *, as_expected: bool) -> None:
        if json or not sys.stderr.isatty():  # only a person needs it
            return
        config = ["--cluster", cluster] if cluster else []
        config += ["--backend", backend] if backend != AUTO else []
        with suppress(LabError, OSError):  # the run itself has ended well
            line = next_command(run, summary, as_expected=as_expected, store=store, config=config)
            notify(f"next: {line}")

    try:
        run, summary = execute(prepared, view=followed_view, notify=notify)
    except RunInterruptedError as interrupt:
        run, summary = interrupt.run, summarize(interrupt.run)
        print_summary(summary, json=json)
        hint(run, summary, as_expected=False)
        raise InterruptError(
            f"run {run.run_id} was interrupted", f"show its results with `lab show {run.run_id}`"
        ) from None
    if detach:
        notify(f"run {run.run_id} continues; follow it with `lab attach {run.run_id}`")
        print(summary.to_json() if json else run.run_id)
        return
    print_summary(summary, json=json)
    try:
        check_succeeded(run, summary, notify)
    except LabError:
        hint(run, summary, as_expected=False)
        raise
    hint(run, summary, as_expected=True)
