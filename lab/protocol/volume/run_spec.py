"""The specification of a run, and the request with which the agents execute it.

The user's specification goes from the command line to the agents and to `run.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from itertools import chain
from typing import Any, Final

from lab.protocol.experiments.experiment import FAIL, RESTART, Experiment, OnFailure, Policy
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.frameworks import FRAMEWORKS, TENSORFLOW
from lab.protocol.volume.files import from_json
from lab.protocol.volume.layout import (
    READY_S,
    RUN_ID,
    STALL_S,
    TASK,
    ClusterSpec,
    chief_of,
    task_names,
)

PLAIN: Final = "plain"
LISTINGS: Final = ("faithful", "mend")
"""The other ways to run a printed program, see `RunSpec`."""

CLUSTER_ARGS: Final = (
    "--job_name={job}",
    "--task_index={index}",
    "--ps_hosts={ps_hosts}",
    "--worker_hosts={worker_hosts}",
)
"""The templates of the arguments that describe the cluster and the task to a program of lab."""

PLACEHOLDER: Final = re.compile(
    r"\{(?:(job|index|rank|local_rank|size)|(?:host|address):([\w-]+)"
    r"|([a-z]+)_(?:hosts|names)(\.\.\.)?)\}"
)
"""A placeholder in an argument or a variable: `--task={index}`, `--machines={worker_hosts}`.

======================================  ====================================================
`{job}`, `{index}`                      the task's job and its index in the job
`{rank}`, `{local_rank}`, `{size}`      those of a rank, and the number of ranks
`{host:TASK}`, `{address:TASK}`         the host of a task, and the same with its port
`{JOB_names}`, `{JOB_hosts}`            those of all tasks of a job, joined by commas
`{JOB_hosts...}`                        one argument for each of them: `--host={ps_hosts...}`
======================================  ====================================================
"""


def fill_in(template: str, own: Mapping[str, str], cluster: ClusterSpec) -> Iterator[str]:
    """Yield the texts that a template stands for; none if a placeholder has no value.

    Args:
        template: The template.
        own: The values of the placeholders that differ between tasks; without those of a rank if
            the task is none.
        cluster: The addresses of all tasks.
    """
    values = [_values(match, own, cluster) for match in PLACEHOLDER.finditer(template)]
    if not all(values):
        return
    several = next((match for match in PLACEHOLDER.finditer(template) if match[4]), None)
    for text in _values(several, own, cluster) if several else [""]:
        rest = template.replace(several[0], text) if several else template
        yield PLACEHOLDER.sub(lambda match: ",".join(_values(match, own, cluster)), rest)


def _values(match: re.Match[str], own: Mapping[str, str], cluster: ClusterSpec) -> list[str]:
    """Return the values of a placeholder; none if the task or the cluster has no such thing."""
    name, task, job, _ = match.groups()
    if name:
        return [own[name]] if name in own else []
    every = zip(task_names(cluster), chain.from_iterable(cluster.values()), strict=True)
    addresses = [at for of, at in every if of == task] if task else cluster.get(job, [])
    has_port = match[0].startswith("{address:") or "_hosts" in match[0]
    return addresses if has_port else [each.rpartition(":")[0] for each in addresses]


def has_placeholders(texts: Iterable[str]) -> bool:
    """Whether one of these texts has a placeholder."""
    return any(map(PLACEHOLDER.search, texts))


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a run trains, how it starts, and when it fails.

    Attributes:
        experiment: The experiment's name, or the program's stem.
        program: The program's path, absolute or relative to the scripts directory. With `own`, it
            is relative to the run's `program/`. With `programs`, it is the user's list of them.
        module: Whether `program` is the name of a module, which is started as by `python -m`.
        args: The program's arguments after the standard flags.
        own: Whether it is the user's own program; the run has a copy of it.
        folder: The directory of the own program as the user typed it, for messages; "" for none.
        listing: How a printed program runs, unchanged, with TensorFlow 1's API: `plain`; `faithful`
            keeps its polling interval of 30 seconds and old checkpoints; `mend` fixes the known
            faults of synchronous programs. "" if it is not a printed program.
        programs: The program of each task, relative to the run's `program/`, if they differ;
            empty: all tasks start `program`. A task without an entry starts no program.
        framework: The framework of the programs, a key of `lab.protocol.frameworks.FRAMEWORKS`.
        horovod: Whether Horovod forms a ring of the tasks that are not services.
        tf_config: Whether the programs get TF_CONFIG.
        must_talk: Whether the run has failed if its tasks make steps and never talk to each other.
        data_dir: The directory of the user's own data as a task sees it; "" for the shipped data.
        services: The jobs that serve until all other jobs have ended (`ps`).
        on_failure: The reaction to a failed task.
        restarts: The maximum number of restarts of each task.
        gang: Whether all tasks restart together when one restarts.
        start: The start time of each late task, as `parse_trigger` reads it. A task without an
            entry starts at once.
        faults: The faults to inject, one line each, as `lab.protocol.experiments.faults` reads
            them.
        stall_s: Seconds without a new global step, or without a sign of life before the first one,
            after which the run has failed; 0: no limit.
        max_time_s: Seconds after which the run is cancelled, with a checkpoint; 0: no limit.
        ready_s: Seconds within which every program must be ready; 0: no limit.
        resumed_from: The run whose checkpoints it resumes from, or "".
        record: The regular expression that makes records of the lines of an own program, or "".
        packages: The packages that the own program needs beside those of its runtime, as pip's
            requirements; in a run each has its version and hash.
        results: Names of the results that the programs must report.
        origin: Where its experiment is from, see `Experiment`; "": from lab, or a path.
        env: The user's variables of the programs: job to name to template, as in `PLACEHOLDER`. The
            job "" stands for all jobs; its variables win.
    """

    experiment: str
    program: str = ""
    args: tuple[str, ...] = ()
    module: bool = False
    own: bool = False
    folder: str = ""
    listing: str = ""
    programs: Mapping[str, str] = field(default_factory=dict)
    framework: str = TENSORFLOW.name
    horovod: bool = False
    tf_config: bool = True
    must_talk: bool = False
    data_dir: str = ""
    services: tuple[str, ...] = ("ps",)
    on_failure: OnFailure = OnFailure.FAIL
    restarts: int = 0
    gang: bool = False
    start: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    stall_s: float = STALL_S
    max_time_s: float = 0.0
    ready_s: float = 0.0
    resumed_from: str = ""
    record: str = ""
    packages: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    origin: str = ""
    env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def completed(self, experiment: Experiment) -> RunSpec:
        """Return a copy with the experiment's program, arguments, services and policy."""
        return replace(
            self,
            program=experiment.program,
            args=(*experiment.args, *self.args),
            services=experiment.services,
            on_failure=experiment.policy.on_failure,
            restarts=experiment.policy.restarts,
            gang=experiment.gang,
            ready_s=max(self.stall_s, READY_S) if self.stall_s else 0.0,
            framework=experiment.framework,
            horovod=experiment.horovod,
            must_talk=experiment.must_talk,
            results=experiment.results,
            origin=experiment.origin,
        )

    def is_service(self, task: str) -> bool:
        """Whether this task is a service: it ends when all other tasks have ended."""
        return task.rpartition("-")[0] in self.services

    def program_of(self, task: str) -> str | None:
        """Return the program of a task; None if it starts none."""
        return self.programs.get(task) if self.programs else self.program

    @property
    def is_completed(self) -> bool:
        """Whether the program's own parser gets the flags of the cluster that the user left out."""
        return self.own and not has_placeholders(self.args)

    def plain_options(self) -> dict[str, str]:
        """Return the options that are not at their defaults: flag without `--` to text.

        The text of a switch is "".
        An option is plain if its flag has its field's name (without `_s`, which stands for seconds)
        and its default depends on nothing else.
        """
        return {
            field.name.removesuffix("_s").replace("_", "-"): _text(value)
            for field in self._plain()
            if (value := getattr(self, field.name)) != field.default
        }

    @classmethod
    def plain_values(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of the plain options among the arguments of `lab.run`."""
        named = {field.name: field.name.removesuffix("_s") for field in cls._plain()}
        return {name: arguments[flag] for name, flag in named.items() if flag in arguments}

    @classmethod
    def _plain(cls) -> list[Field[Any]]:
        return [field for field in fields(cls) if field.name not in _NOT_PLAIN]

    @property
    def has_ranks(self) -> bool:
        """Whether each task that is not a service is a rank."""
        return self.horovod or FRAMEWORKS[self.framework].has_ranks

    @property
    def waits(self) -> bool:
        """Whether the program waits for the start signal."""
        return not self.own


_NOT_PLAIN: Final = {
    *("experiment", "program", "args", "own", "folder"),
    *("programs", "data_dir", "services", "on_failure", "restarts", "gang", "start"),
    *("faults", "ready_s", "resumed_from", "framework", "horovod", "tf_config", "env"),
    *("must_talk", "packages", "results", "origin"),
}


def _text(value: object) -> str:
    """Return a value as the flags of `lab run` take it; "" for a switch."""
    if isinstance(value, bool) or value == PLAIN:
        return ""
    if isinstance(value, int | float):
        return f"{value:.0f}s" if value == int(value) else f"{value:f}"
    return str(value)


def registered(spec: RunSpec) -> Experiment | None:
    """Return the experiment of a run; None if the run has the user's own program."""
    return None if spec.own else EXPERIMENTS.get(spec.experiment)


def own_policy(framework: str) -> Policy:
    """Return the default policy of a user's own program.

    A group of ranks does not survive the end of one of them, so all of them start again.
    """
    return RESTART if FRAMEWORKS[framework].has_ranks else FAIL


def module_files(name: str) -> tuple[str, str]:
    """Return the files that may contain a module's code, relative to its directory on `sys.path`.

    The first one is that of a package, which Python prefers.
    """
    place = name.replace(".", "/")
    return f"{place}/__main__.py", f"{place}.py"


@dataclass(frozen=True, slots=True)
class Request:
    """One run, as the task agents execute it.

    Attributes:
        run_id: The run's id, also the name of its directory.
        spec: The user's specification of the run.
        cluster: TensorFlow's cluster spec of the environment.
        submitted_unix: When it was submitted, in seconds since the epoch.
        autorun: Digest of the automatic run of `docker compose up`, if this is that run; or "".
    """

    run_id: str
    spec: RunSpec
    cluster: ClusterSpec
    submitted_unix: float = 0.0
    autorun: str = ""

    def tasks(self) -> list[str]:
        """Return the names of all tasks, in the cluster's order."""
        return task_names(self.cluster)

    def others(self) -> list[str]:
        """Return the tasks whose end ends the run: all tasks that are not services."""
        return [task for task in self.tasks() if not self.spec.is_service(task)]

    def ranks(self) -> list[str]:
        """Return the tasks that are ranks, in the order of their ranks: the chief is rank 0.

        Horovod's ring and some frameworks have ranks. Services, evaluators and tasks without a
        program are not ranks.
        """
        tasks = [
            task
            for task in self.others()
            if self.spec.has_ranks
            and self.spec.program_of(task) is not None
            and not task.startswith("evaluator-")
        ]
        return sorted(tasks, key=lambda task: task != self.chief)

    @property
    def chief(self) -> str | None:
        """The task that initializes and saves, if any."""
        return chief_of(self.tasks())

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Decode a request.

        Raises:
            ValueError: The text is not a request.
        """
        request = from_json(text, cls, "request")
        if not RUN_ID.fullmatch(request.run_id):
            raise ValueError(f"not a run id: {request.run_id!r}")
        for name in request.tasks():
            if not TASK.fullmatch(name):
                raise ValueError(f"not a task: {name!r}")
        return request
