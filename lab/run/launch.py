"""One run from its preparation to its end, whatever happens in between."""

from __future__ import annotations

import secrets
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from lab import signals
from lab.backends import Environment, Say
from lab.errors import LabError
from lab.plan import Plan
from lab.run import lifecycle
from lab.run.directory import RunDir, RunInfo
from lab.run.lifecycle import View
from lab.run.program import OwnProgram
from lab.run.provenance import git_state, versions
from lab.run.summary import Summary
from lab.task.experiments import Experiment
from lab.task.flags import training_flags
from lab.task.protocol import STALL_S, new_run_id
from lab.task.states import State

MAX_SEED: Final = 2**31
INTERRUPTED: Final = "interrupted"


@dataclass(frozen=True, slots=True)
class Order:
    """What a user asks for, checked.

    Attributes:
        experiment: The experiment.
        argv: The words for its program: flags first, then what stood behind `--`.
        plan: The placement.
        root: The project's directory.
        cluster_file: The description.
        data_dir: A student's own data as a task sees it, or "".
        program: The user's own program, if it is none of the registry.
        stall_s: Seconds without a new global step after which the run has failed; 0: no limit.
    """

    experiment: Experiment
    argv: tuple[str, ...]
    plan: Plan
    root: Path
    cluster_file: Path
    data_dir: str
    program: OwnProgram | None = None
    stall_s: float = STALL_S


def prepare(order: Order, home: Path) -> RunDir:
    """Create `runs/<id>/run.json`, before anything starts.

    Raises:
        OSError: The directory cannot be written.
    """
    argv = with_seed(order.experiment, order.argv)
    parameters = defaults(order.experiment) | hyperparameters(order.experiment, argv)
    seed = parameters.get("seed")
    info = RunInfo(
        run_id=new_run_id(order.experiment.name),
        experiment=order.experiment.name,
        program=order.experiment.program,
        project=order.plan.name,
        argv=argv,
        hyperparameters=parameters,
        seed=seed if isinstance(seed, int) else None,
        data_dir=order.data_dir,
        cluster=order.plan.cluster_spec(),
        cluster_file=str(order.cluster_file),
        cluster_sha256=order.plan.cluster_sha256,
        services=order.experiment.services,
        tasks=tuple(_place(order.plan)),
        gpus=tuple(dict.fromkeys(gpu for task in order.plan.tasks for gpu in task.gpus)),
        plan=asdict(order.plan),
        git=git_state(order.root),
        versions=versions(),
        started_unix=time.time(),
        own=order.program is not None,
        stall_s=order.stall_s,
    )
    if order.program is not None:
        info = replace(info, cluster_flags=order.program.cluster_flags)
    run = RunDir(home / info.run_id)
    run.create(info)
    if order.program is not None:
        order.program.copy_to(run.program)
    return run


def with_seed(experiment: Experiment, argv: Sequence[str]) -> tuple[str, ...]:
    """The same words with a seed among them, drawn if none was given, so that it is recorded."""
    if "seed" not in experiment.flags or "seed" in hyperparameters(experiment, argv):
        return tuple(argv)
    return (f"--seed={secrets.randbelow(MAX_SEED)}", *argv)


def defaults(experiment: Experiment) -> dict[str, Any]:
    """What the program takes where nothing is given, as far as it does not depend on the model."""
    parser = training_flags("")
    known = {name: parser.get_default(name) for name in experiment.flags}
    return {name: value for name, value in known.items() if value is not None}


def hyperparameters(experiment: Experiment, argv: Sequence[str]) -> dict[str, Any]:
    """The program's flags among its words, with their values; the last one of a name counts."""
    found: dict[str, Any] = {}
    words = list(argv)
    for position, word in enumerate(words):
        name, equals, raw = word.removeprefix("--").partition("=")
        flag = experiment.flags.get(name)
        if flag is None or not word.startswith("--"):
            continue
        if not equals:
            following = words[position + 1 : position + 2]
            raw = "true" if flag.is_switch or not following else following[0]
        try:
            value = flag.parse(raw)
        except (ValueError, ArgumentTypeError):  # behind `--`, unchecked: the program refuses it
            value = raw
        found[name] = value if isinstance(value, int | float | str | bool) else str(value)
    return found


def conduct(
    run: RunDir,
    *,
    boot: Callable[[], Environment],
    found: Environment | None,
    keep: bool,
    detach: bool = False,
    view: Callable[[], AbstractContextManager[View]],
    say: Say,
) -> Summary:
    """Boot if nothing is up, submit, follow, collect, sum up, and take down what was booted.

    Args:
        run: What `prepare` created.
        boot: Boots an environment.
        found: The environment that is up already, or None.
        keep: Whether an environment that this call boots stays up.
        detach: Whether to leave the run, and the environment, as soon as it is submitted.
        view: Makes the context manager of a view; entered while the run is followed.
        say: Receives progress.

    Returns:
        The summary of a run that has ended, in whatever state, or was left.

    Raises:
        LabError: It could not be run, or the environment went; `run.json` says so.
        KeyboardInterrupt: The user ended it; `run.json` says so.
    """
    environment = found
    with run.locked(), signals.as_interrupt():
        try:
            if environment is None:
                environment = boot()
            lifecycle.enter(run, environment)
            if detach:
                with signals.deferred():
                    lifecycle.submit(run, environment)
                keep = True
            else:
                with view() as shown:
                    _follow(run, environment, shown)
            return lifecycle.finish(run)
        except KeyboardInterrupt:
            _end(run, State.CANCELLED, INTERRUPTED)
            raise
        except (LabError, OSError) as error:
            _end(run, State.FAILED, str(error))
            raise
        finally:
            if found is None and environment is not None and not keep:
                with signals.undisturbed():
                    environment.down(say)


def _follow(run: RunDir, environment: Environment, view: View) -> None:
    """Submit the run and bring it home; when that breaks off, end it on the volume too."""
    try:
        with signals.deferred():
            lifecycle.submit(run, environment)
        _come_home(run, environment, view)
    except KeyboardInterrupt:
        environment.cancel(run.run_id, INTERRUPTED)
        view.notice("interrupted: the run ends and comes home; Ctrl-C again gives up on it")
        _come_home(run, environment, view)
        raise
    except OSError as error:
        environment.cancel(run.run_id, f"the helper could not go on: {error}")
        raise


def _come_home(run: RunDir, environment: Environment, view: View) -> None:
    """Follow the run to its end; where that breaks off, go on once, or fetch what is left.

    A stream ends with the one task that it comes through, while the others may train on.

    Raises:
        LabError: It broke off again, or the environment has gone.
    """
    try:
        lifecycle.bring_home(run, environment, follow=True, view=view)
    except LabError as error:
        gone = lifecycle.has_gone(environment)
        view.notice(f"{error.what}; " + ("collecting what it left" if gone else "going on"))
        try:
            lifecycle.bring_home(run, environment, follow=not gone, view=view)
            if gone:
                raise
        except LabError:
            if gone or lifecycle.has_gone(environment):  # it may have been going just then
                _end(run, State.LOST, str(error))
            raise


def _end(run: RunDir, state: State, reason: str) -> None:
    """Sum up a run that broke off; what its tasks say of its end goes first."""
    if not State(lifecycle.finish(run).state).ended:
        lifecycle.end_as(run, state, reason)
        lifecycle.finish(run)


def _place(plan: Plan) -> Iterator[dict[str, Any]]:
    for task in plan.tasks:
        yield {
            "task": task.name,
            "node": task.node,
            "address": f"{task.node}:{task.port}",
            "gpus": task.gpus,
        }
