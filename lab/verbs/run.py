r"""`lab run EXPERIMENT`.

Tasks can have different PROGRAMs in one directory: worker-0=a.py,worker-1=b.py

Examples:
    # three asynchronous workers
    lab run async --epochs 2
    # without containers
    lab run sync --cluster clusters/book.yaml --backend local --epochs 1
    # restart a worker that fails
    lab run async --on-failure restart --fault "kill worker-1 after 500 steps"
    # pass each task's job and index to your own program
    lab run my_program.py -- {job} {index}
    # read lines that `lab` does not recognize: `it 10, err 0.5`
    lab run mine.py --record 'it (?P<step>\d+), err (?P<loss>\S+)'
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final

from lab.backends.names import AUTO
from lab.base.console import command_name, messages_shown
from lab.base.console import output as output_of_caller
from lab.base.converters import boolean, duration, one_of
from lab.base.errors import InputError, InterruptError, LabError
from lab.base.formatting import seconds, whole
from lab.base.formatting import share as percentage
from lab.base.log import LOG
from lab.base.options import (
    Argument,
    Flag,
    Parameter,
    ProgramArguments,
    RepeatedFlag,
    Switch,
    parameters,
    reads_options,
)
from lab.cluster.config.cluster import PACKAGE, VARIABLE
from lab.cluster.config.validation import parse_start
from lab.cluster.experiments import find_experiment
from lab.cluster.project import AnyPath, default_root
from lab.programs import names_a_program
from lab.protocol.experiments.experiment import parse_policy
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.runtimes import RUNTIMES
from lab.protocol.volume import RunSpec
from lab.protocol.volume.continuation import has_checkpoint
from lab.protocol.volume.layout import STALL_S
from lab.protocol.volume.run_spec import LISTINGS, PLAIN
from lab.protocol.volume.states import State
from lab.runner.fault_injection import parse_faults
from lab.runner.prepared import prepare_run
from lab.runner.runner import RunInterruptedError, execute
from lab.runner.store.directory import RunDir, runs_path
from lab.runner.store.summarize import summarize
from lab.runner.store.summary import Summary
from lab.runner.verdict import check_succeeded, report_unread
from lab.runner.view import MakeView
from lab.verbs.common_options import (
    BackendName,
    DataDir,
    GpuMode,
    OwnOptions,
    RunsDir,
    Share,
    Stall,
)
from lab.verbs.inputs import Config, check_main_thread, place_options, program_args, project
from lab.verbs.printing import Called, prints
from lab.verbs.results import Run
from lab.verbs.run_view import brief_view, print_summary, view_for_stderr

FURTHER_FLAGS: Final = (
    "`lab experiments` lists experiments; `lab run async --help` lists flags of async"
)
"""The line of the help about the flags of programs."""


def parse_listing(raw: str) -> str:
    """Read how a printed program runs: `--listing` is `plain`, see `RunSpec`."""
    if raw in {*LISTINGS, PLAIN}:
        return raw
    try:
        return PLAIN if boolean(raw) else ""
    except ValueError:
        raise ValueError(" or ".join(LISTINGS)) from None


def parse_variable(raw: str) -> tuple[str, str]:
    """Read a variable, `NAME=VALUE`."""
    name, equals, value = raw.partition("=")
    if not equals or not re.fullmatch(VARIABLE, name) or "\0" in value:
        raise ValueError("NAME=VALUE")
    return name, value


def parse_package(raw: str) -> str:
    """Read a package, with or without its version."""
    if not re.fullmatch(PACKAGE, raw):
        raise ValueError("a package, such as boto3 or boto3==1.40.*")
    return raw


def program_flags(experiment: str | None) -> dict[str, Parameter]:
    """Return the flags of an experiment's program; without an experiment, those of all programs."""
    if experiment is not None and (names_a_program(experiment) or "." in experiment):
        return {}
    one = None if experiment is None else find_experiment(experiment, default_root())
    if one is not None and one.origin:
        own = {each.flag for each in parameters(run) if each.is_flag} | {"help"}
        if taken := own & one.flags.keys():
            problem = f"{one.origin}: {one.name} has the flag --{min(taken)} of `lab run`"
            raise InputError(problem, "rename the program's flag")
    known = EXPERIMENTS.values() if one is None else [one]
    flags = {name: flag for each in known for name, flag in each.flags.items()}
    kinds = {
        name: (Switch if flag.is_switch else Flag)(flag.help, parse=flag.parse)
        for name, flag in flags.items()
    }
    return {name: Parameter(name, kind, default=None) for name, kind in kinds.items()}


Schedule = Annotated[
    str | Mapping[str, str] | None,
    Flag(parse=parse_start, shows="SCHEDULE", separator="; ", pair=": "),
]
Faults = Annotated[
    str | Sequence[str] | None, Flag(parse=parse_faults, shows="FAULTS", separator="; ")
]
Variables = Annotated[
    Mapping[str, str] | Sequence[str], RepeatedFlag(parse=parse_variable, shows="NAME=VALUE")
]


@reads_options
def run(  # noqa: D417  (the decorator adds those of common_options)
    experiment: Annotated[AnyPath, Argument(shows="EXPERIMENT|PROGRAM")],
    *,
    cluster: Config = None,
    backend: BackendName = AUTO,
    option: OwnOptions = (),
    gpus: GpuMode = AUTO,
    share: Share = False,
    data_dir: DataDir = None,
    stall: Stall = STALL_S,
    max_time: Annotated[float | str, Flag(parse=duration, shows="TIME")] = 0.0,
    on_failure: Annotated[str | None, Flag(parse=parse_policy, shows="WHAT")] = None,
    start: Schedule = None,
    fault: Faults = None,
    module: Annotated[bool, Switch(short="-m")] = False,
    args: Annotated[str | Sequence[str], ProgramArguments(FURTHER_FLAGS, program_flags)] = (),
    record: Annotated[str, Flag(shows="REGEX")] = "",
    env: Variables = (),
    with_: Annotated[Sequence[str], RepeatedFlag(parse=parse_package, shows="PACKAGE")] = (),
    framework: Annotated[str | None, Flag(parse=one_of(*RUNTIMES), shows="NAME")] = None,
    listing: Annotated[bool | str, Switch(parse=parse_listing, shows="[=faithful|mend]")] = "",
    resume: Annotated[AnyPath | None, Flag(shows="RUN")] = None,
    runs_dir: RunsDir = None,
    detach: Annotated[bool, Switch(short="-d")] = False,
    check: bool = True,
    quiet: bool = False,
    view: MakeView | None = None,
    **flags: object,
) -> Run:
    """Train an experiment, and return the ended run.

    Args:
        experiment: An experiment, or the path of your own program.
        max_time: Save a checkpoint and stop after this time: 10m; 0: no limit.
        on_failure: If a task fails: fail, restart, restart:N or continue (default: fail; PyTorch
            and JAX: restart).
        start: Tasks that start later: worker-1: 10s.
        fault: Faults to inject: kill worker-1 after 500 steps.
        module: Run a module, as `python -m` does.
        args: Arguments for your own program, with placeholders: `{job}`, `{index}`, `{JOB_hosts}`.
        record: A regular expression for your program's lines.
        env: An environment variable; may have placeholders.
        with_: A package that your program needs: boto3.
        framework: tensorflow, tensorflow-2.15, torch or jax (default: what your program imports).
        listing: Run a TensorFlow 1 program unchanged (`faithful`: keep slow polls, `mend`: fix
            bugs).
        resume: Continue from the checkpoints of this run.
        detach: Return when the run has started (see `lab attach`).
        check: Whether a run that fails, or has unexpected results, is an error.
        quiet: Print nothing but warnings.
        view: What shows the run; None: one line that changes.
        **flags: Flags of the program: `epochs=3`, `learning_rate=0.1`.

    Raises:
        InputError: An argument is invalid; nothing was started.
        LabError: The run could not be executed; with `check`, also: it did not succeed.
        KeyboardInterrupt: The user interrupted the run, which is cancelled and collected.
    """
    check_main_thread("run")
    return _trained(locals(), flags)


def _trained(given: Mapping[str, Any], flags: Mapping[str, object]) -> Run:
    """Do what `run` says, with its arguments."""
    name, view, out = given["experiment"], given["view"], output_of_caller()
    spec = RunSpec(
        name,
        args=(*program_args(name, flags, module=given["module"]), *given["args"]),
        start=given["start"] or {},
        env={"": dict(given["env"])} if given["env"] else {},
        packages=tuple(given["with_"]),
        **RunSpec.plain_values(given),
    )
    with messages_shown(out, quiet=given["quiet"]):
        prepared = prepare_run(
            spec, project(given["cluster"]), runs_path(given["runs_dir"]), place_options(given),
            data_dir=given["data_dir"], on_failure=given["on_failure"],
            faults=given["fault"] or (), framework=given["framework"], resume=given["resume"],
            detach=given["detach"],
        )  # fmt: skip
        try:
            shown = view or partial(brief_view, out=out, quiet=given["quiet"])
            run_dir, summary = execute(prepared, detach=given["detach"], view=shown)
        except RunInterruptedError as interrupt:
            if view is None:
                at = interrupt.run
                LOG.warning(
                    f"run {at.run_id} was interrupted; its collected files are in {at.path}"
                )
            raise
        if view is None:
            LOG.info(_line(summary))
            if not given["check"]:
                report_unread(run_dir, summary)
        if given["check"]:
            check_succeeded(run_dir, summary)
    return Run(run_dir)


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


def _present(train: Called, *, json: bool) -> None:
    given = None if json else train.keywords
    try:
        done: Run = train()
    except RunInterruptedError as interrupt:
        stopped, summary = interrupt.run, summarize(interrupt.run)
        print_summary(summary, json=json)
        _hint(given, stopped, summary, as_expected=False)
        raise InterruptError(
            f"run {stopped.run_id} was interrupted",
            f"show its results with `lab show {stopped.run_id}`",
        ) from None
    made, summary = done.directory, done.summary
    if train.keywords.get("detach"):
        LOG.info(f"run {made.run_id} continues; follow it with `lab attach {made.run_id}`")
        print(summary.to_json() if json else made.run_id)
        return
    print_summary(summary, json=json)
    as_expected = False
    try:
        check_succeeded(made, summary)
        as_expected = True
    finally:
        _hint(given, made, summary, as_expected=as_expected)


def _hint(
    given: Mapping[str, Any] | None, made: RunDir, summary: Summary, *, as_expected: bool
) -> None:
    """Print the command that a person may want next; a program wants none."""
    if given is None or not sys.stderr.isatty():
        return
    with suppress(LabError, OSError):  # the run itself has ended well
        if line := next_command(made, summary, given, as_expected=as_expected):
            LOG.info(f"next: {line}")


def next_command(
    run: RunDir, summary: Summary, given: Mapping[str, Any], *, as_expected: bool = True
) -> str:
    """Return the next command, or two of them joined by "or"; "" if an error says what to do.

    Args:
        run: The run that has ended.
        summary: Its summary.
        given: The options of this command; those that name the run store and the place are kept.
        as_expected: Whether it succeeded with the expected results.

    Raises:
        OSError: The run store cannot be read.
    """

    def line(*words: str, kept: Sequence[str] = ()) -> str:
        flags = [
            f"--{name.replace('_', '-')}={value}"
            for name in (*kept, "runs_dir")
            if name in given
            for value in (given[name] if name == "option" else [given[name]])
        ]
        return f"{command_name()} {shlex.join([*words, *flags])}".replace("'last~1'", "last~1")

    if (
        summary.state == State.CANCELLED
        and not run.read().spec.own
        and has_checkpoint(run.checkpoints)
    ):
        place = ("cluster", "backend", "option")
        return line("run", summary.experiment, "--resume", run.run_id, kept=place)
    if not as_expected:
        return ""
    if summary.global_step is None:  # without steps, a report has no curves
        return line("logs", "last")
    if _follows_a_run_of(run, summary.experiment):
        return f"{line('report', 'last')}, or {line('compare', 'last~1', 'last')}"
    return line("report", "last")


def _follows_a_run_of(run: RunDir, experiment: str) -> bool:
    """Whether the run before this one is of this experiment, so that a comparison makes sense."""
    from lab.runner.store.names import started  # noqa: PLC0415  (only for a hint)

    pair = list(started(run.path.parent).values())[-2:]
    return len(pair) > 1 and pair[1].run_id == run.run_id and pair[0].spec.experiment == experiment


command = prints(run, _present, json="print the summary as JSON", view=view_for_stderr, check=False)
