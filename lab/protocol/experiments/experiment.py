"""What an experiment is: its failure policy, its flags, and whether it fits a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from lab.protocol.experiments.program_flags import ProgramFlag

MAX_SEED: Final = 2**31


class OnFailure(StrEnum):
    """The reaction to a failed task: end the run, restart the task, or continue without it."""

    FAIL = "fail"
    RESTART = "restart"
    CONTINUE = "continue"


RESTARTS: Final = 3
"""The default maximum number of restarts of each task."""

_RESTART: Final = re.compile(r"restart:([1-9][0-9]{0,2})")


@dataclass(frozen=True, slots=True)
class Policy:
    """What happens to a run when a task fails.

    Attributes:
        on_failure: The reaction.
        restarts: The maximum number of restarts of each task; 0 without the reaction `restart`.
    """

    on_failure: OnFailure = OnFailure.FAIL
    restarts: int = 0

    def __str__(self) -> str:
        restarts = f":{self.restarts}" if self.on_failure is OnFailure.RESTART else ""
        return f"{self.on_failure.value}{restarts}"


FAIL: Final = Policy()
"""The default policy."""

RESTART: Final = Policy(OnFailure.RESTART, RESTARTS)
"""The default policy of programs that can continue after a restart."""


def parse_policy(text: str) -> Policy:
    """Parse `fail`, `restart`, `restart:5` or `continue`.

    Raises:
        ValueError: The text is something else.
    """
    if match := _RESTART.fullmatch(text):
        return Policy(OnFailure.RESTART, int(match[1]))
    if text == OnFailure.RESTART:
        return RESTART
    if text in {OnFailure.FAIL, OnFailure.CONTINUE}:
        return Policy(OnFailure(text))
    raise ValueError("fail, restart, restart:N (N from 1 to 999), or continue")


@dataclass(frozen=True, slots=True)
class Experiment:
    """A named training program.

    Attributes:
        name: Its name for `lab run` and `LAB_RUN`.
        program: The program's file; see `origin`.
        summary: One line for lists.
        jobs: The jobs that the cluster must have, each with at least one task.
        counts: The exact number of tasks by job, for jobs that need one.
        cluster: The shipped config that fits it best; "" if any config with these jobs fits.
        services: The jobs that serve until all other jobs have ended.
        args: Default arguments; they come before the user's own, which override them.
        has_data: Whether the program reads the images.
        flags: The program's own flags, by name without dashes.
        steps_add_up: Whether every local step is an update, so that the workers' local steps add up
            to the global step. Then the run can also continue without a worker.
        gang: Whether all tasks restart together when one restarts: their shared state does not
            survive the end of one task.
        horovod: Whether Horovod forms a ring of its tasks.
        joins_at_step: Whether the program itself waits for the global step at which a task joins.
            The agents' states report the step up to a second late.
        must_talk: Whether a run has failed if its tasks make steps and never talk to each other.
        policy: The default policy of its runs when a task fails.
        faults: The faults to inject into each of its runs; see `lab.protocol.experiments.faults`.
        results: Names of the results that each run must have; the program reports their limits.
        expected: The expected outcome, as a text.
        page: Its page in `docs/tutorials/lessons/`; "": the one with its name.
        runtime: Its runtime, a key of `lab.protocol.runtimes.RUNTIMES`.
        origin: Where it is from: the file of the user's project, or a package and its version; "":
            it comes with lab. Then its program is in `scripts/`, else it is an absolute path.
    """

    name: str
    program: str
    summary: str
    jobs: tuple[str, ...] = ("ps", "worker")
    counts: Mapping[str, int] = field(default_factory=dict)
    cluster: str = ""
    services: tuple[str, ...] = ("ps",)
    args: tuple[str, ...] = ()
    has_data: bool = True
    flags: Mapping[str, ProgramFlag] = field(default_factory=dict)
    steps_add_up: bool = False
    gang: bool = False
    horovod: bool = False
    joins_at_step: bool = False
    must_talk: bool = True
    policy: Policy = FAIL
    faults: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    expected: str = ""
    page: str = ""
    runtime: str = "tensorflow"
    origin: str = ""

    @property
    def framework(self) -> str:
        """Its framework: `tensorflow` of the runtime `tensorflow-2.15`."""
        return self.runtime.partition("-")[0]

    @property
    def lesson(self) -> str:
        """Its page in `docs/tutorials/lessons/`: `async.md`; "": it has none."""
        return "" if self.origin else self.page or f"{self.name}.md"


def misfit(wanted: Experiment, tasks: Mapping[str, int]) -> str:
    """Return why an experiment cannot run on a cluster, or "".

    Args:
        wanted: The experiment.
        tasks: The number of tasks of each job of the cluster.

    Returns:
        The end of a message that begins with the experiment's name: `needs the job 'ps'`.
    """
    for job in wanted.jobs:
        if not tasks.get(job):
            return f"needs the job {job!r}"
    for job, count in wanted.counts.items():
        if tasks[job] != count:
            return f"needs {count} of the job {job!r}, not {tasks[job]}"
    for job in tasks:
        if job not in wanted.jobs:
            return f"does not use the job {job!r}"
    return ""


def with_seed(experiment: Experiment, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments with a seed; if they have none, draw one, so that it is recorded."""
    if "seed" not in experiment.flags or "seed" in hyperparameters(experiment, argv):
        return tuple(argv)
    import secrets  # noqa: PLC0415  (its import is slow, and few commands need it)

    return (f"--seed={secrets.randbelow(MAX_SEED)}", *argv)


def separated(
    arguments: Sequence[str], flags: Mapping[str, ProgramFlag]
) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield each argument: its flag or "", the flag's value as text, and all of its words."""
    queue = list(arguments)
    while queue:
        words = [queue.pop(0)]
        name, equals, value = words[0].removeprefix("--").partition("=")
        flag = flags.get(name) if words[0].startswith("--") else None
        if flag is not None and not equals:
            if not flag.is_switch and queue:
                words.append(queue.pop(0))
            value = "true" if flag.is_switch else "".join(words[1:])
        yield "" if flag is None else name, value, words


def hyperparameters(experiment: Experiment, argv: Sequence[str]) -> dict[str, Any]:
    """Return the program's flags among its arguments; the last value of a flag counts."""
    values: dict[str, Any] = {}
    for name, raw, _ in separated(argv, experiment.flags):
        if not name:
            continue
        try:
            value = experiment.flags[name].parse(raw)
        except ValueError:  # after `--`, unchecked: the program rejects it
            value = raw
        values[name] = value if isinstance(value, int | float | str | bool) else str(value)
    return values


def with_defaults(experiment: Experiment, argv: Sequence[str]) -> dict[str, Any]:
    """Return the program's flags; also those with a default that does not depend on the model."""
    defaults = {name: flag.default for name, flag in experiment.flags.items()}
    chosen = hyperparameters(experiment, argv)
    return {name: value for name, value in defaults.items() if value is not None} | chosen
