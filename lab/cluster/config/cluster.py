"""The config as types: its keys, limits and defaults.

An editor shows the attribute docstrings: they become the descriptions of the JSON Schema.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from lab.base import units as sizes
from lab.protocol.experiments.faults import parse, parse_trigger

MAX_GPUS: Final = 1024
MAX_CPUS: Final = 4096
MAX_PORT: Final = 65535

PROJECT: Final = "^[a-z0-9][a-z0-9-]{0,30}$"
NODE: Final = "^[a-z]([a-z0-9-]{0,29}[a-z0-9])?$"
MEMORY: Final = "an amount such as 8GiB or 512MiB, from 64MiB to 64TiB"

MAX_TASKS: Final = 10_000
OF_A_RUN: Final = frozenset({"run", "start", "needs", "packages", "faults"})
"""The keys of a config that belong to a run, not to the environment."""

MAX_FLAGS: Final = 100
MIN_PORT: Final = 1024  # only root may use lower ports
DEFAULT_PORT: Final = 2222

JOB: Final = "^[a-z]{1,31}$"
TASK: Final = "^[a-z]{1,31}-(0|[1-9][0-9]{0,4})$"
FLAG: Final = "^[a-z][a-z0-9_]{0,40}$"
VARIABLE: Final = "^[A-Za-z_][A-Za-z0-9_]{0,100}$"
_CLAUSE: Final = "(==|~=|!=|<=|>=|<|>)[A-Za-z0-9.*+!]{1,50}"
PACKAGE: Final = f"^[A-Za-z0-9][A-Za-z0-9._-]{{0,100}}({_CLAUSE}(,{_CLAUSE})*)?$"
_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
GPU_ID: Final = f"^(GPU-{_UUID}|MIG-{_UUID}|MIG-GPU-{_UUID}/[0-9]{{1,3}}/[0-9]{{1,3}})$"

RATE: Final = "a rate such as 100mbit or 10gbit, from 8kbit to 400gbit"
MOMENT: Final = "a moment such as 10s, or: after 500 steps"
FAULT: Final = "a fault such as kill worker-1 after 500 steps"
DELAY: Final = "a delay such as 5ms or 200us, from 1us to 10s"


def text_of(
    parse: Callable[[str], object], expected: str, *, explain: bool = False
) -> BeforeValidator:
    """Return a validator that parses a text.

    Args:
        parse: The parser. Raises ValueError for an invalid text.
        expected: The expected form, for the message.
        explain: Whether the message also has the parser's reason.
    """

    def validate(value: object) -> object:
        why = ""
        if isinstance(value, str):
            try:
                return parse(value)
            except ValueError as error:
                why = " ({})".format(str(error).partition("; ")[0]) if explain else ""
        raise PydanticCustomError("expected", "must be {expected}", {"expected": expected + why})

    return BeforeValidator(validate)


def amount(units: Mapping[str, int], expected: str, least: int, most: int) -> BeforeValidator:
    """Return a validator that parses an amount to a whole number of the smallest unit."""

    def read(text: str) -> int:
        amount = sizes.parse(text, units)
        if not least <= amount <= most:
            raise ValueError(expected)
        return amount

    return text_of(read, expected)


def shown(example: str, *more: str, pattern: str = "") -> WithJsonSchema:
    """Return the JSON Schema of a text."""
    shape = {"pattern": pattern} if pattern else {}
    return WithJsonSchema({"type": "string", **shape, "examples": [example, *more]})


def kind_of(number: str, other: str, *types: type) -> Callable[[object], str | None]:
    """Return a function that names the branch of a union for a value."""

    def kind(value: object) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool):
            return number
        return other if isinstance(value, types) else None

    return kind


def _flag_value(value: object, without: str = "${}") -> str:
    others = f"{', '.join(without)} and " if without else ""
    expected = f"a number, true, false, or a string without {others}control characters"
    if isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, str) and value.isprintable() and not set(value) & set(without):
        return value
    raise PydanticCustomError("expected", "must be {expected}", {"expected": expected})


GpuCount = Annotated[int, Field(ge=0, le=MAX_GPUS)]
NodeName = Annotated[str, Field(pattern=NODE)]
Memory = Annotated[
    int,
    amount(sizes.MEMORY, MEMORY, 64 * sizes.MIB, 64 * sizes.TIB),
    shown("8GiB", pattern=sizes.pattern(sizes.MEMORY)),
]
_Port = Annotated[int, Field(ge=MIN_PORT, le=MAX_PORT)]
_GpuIndex = Annotated[int, Field(ge=0, lt=MAX_GPUS)]
_GpuId = Annotated[str, Field(pattern=GPU_ID)]
_Gpu = Annotated[
    Annotated[_GpuIndex, Tag("index")] | Annotated[_GpuId, Tag("id")],
    Discriminator(
        kind_of("index", "id", str),
        custom_error_type="gpu",
        custom_error_message="must be a GPU's index, or its UUID from `nvidia-smi -L`",
    ),
]
# Only the tuple is not strict, so that it accepts a list; its items are strict.
_GpuList = Annotated[tuple[_Gpu, ...], Field(min_length=1, max_length=MAX_GPUS, strict=False)]
_Gpus = Annotated[
    Annotated[GpuCount, Tag("count")] | Annotated[_GpuList, Tag("list")],
    Discriminator(
        kind_of("count", "list", list, tuple),
        custom_error_type="gpus",
        custom_error_message="must be a count, such as 2, or a list of GPUs, such as [0, 1]",
    ),
]
_JobName = Annotated[str, Field(pattern=JOB)]
_TaskName = Annotated[str, Field(pattern=TASK)]
_FlagName = Annotated[str, Field(pattern=FLAG)]
_Moment = Annotated[
    str,
    text_of(lambda text: str(parse_trigger(text)), MOMENT),
    shown("10s", "after 500 steps"),
]
_Fault = Annotated[
    str,
    text_of(lambda text: parse(text).text, FAULT, explain=True),
    shown("kill worker-1 after 500 steps"),
]
_FlagValue = Annotated[
    str,
    BeforeValidator(_flag_value),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
_Package = Annotated[str, Field(pattern=PACKAGE)]
_VariableName = Annotated[str, Field(pattern=VARIABLE)]
_VariableValue = Annotated[
    str,
    BeforeValidator(lambda value: _flag_value(value, without="")),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
_Rate = Annotated[
    int,
    amount(sizes.RATE, RATE, 8 * 10**3, 400 * 10**9),
    shown("100mbit", pattern=sizes.pattern(sizes.RATE)),
]
_Delay = Annotated[
    int,
    amount(sizes.DELAY, DELAY, 1, 10 * 10**6),
    shown("5ms", pattern=sizes.pattern(sizes.DELAY)),
]


class ConfigModel(BaseModel):
    """A mapping of a config: it is frozen, and its values are not converted."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        defer_build=True,  # the parts are built with the whole
    )


class Box(ConfigModel):
    """The physical host: what it must have for this config."""

    gpus: GpuCount | None = None
    """Number of GPUs that the host must have; by default the number that the nodes need."""

    cpus: Annotated[int, Field(ge=1, le=MAX_CPUS)] | None = None
    """Number of CPUs of the host; used when the file is rendered for another host."""

    memory: Memory | None = None
    """Main memory of the host; used when the file is rendered for another host."""


class Node(ConfigModel):
    """A pseudo-node: a part of the host with its own hostname and network address."""

    gpus: _Gpus = 0
    """A count takes the next free GPUs of the host; a list pins indices, UUIDs or MIG UUIDs."""

    cpus: Annotated[float, Field(gt=0, le=MAX_CPUS)] | None = None
    """CPUs of the node, divided among its tasks; by default an equal part of the CPUs left."""

    memory: Memory | None = None
    """Main memory of the node, divided among its tasks; by default no limit."""

    shm: Memory | None = None
    """Shared memory of the node, which its tasks have as /dev/shm; by default 1GiB."""

    @property
    def gpu_count(self) -> int:
        """The number of GPUs of the node."""
        return self.gpus if isinstance(self.gpus, int) else len(self.gpus)

    @property
    def pins(self) -> tuple[int | str, ...]:
        """The GPUs that it pins by index or UUID; empty if it states a count."""
        return () if isinstance(self.gpus, int) else self.gpus


class Job(ConfigModel):
    """A TensorFlow job: tasks of the same kind."""

    on: Annotated[tuple[NodeName, ...], Field(min_length=1, max_length=MAX_TASKS, strict=False)]
    """The nodes of its tasks, one task per entry; the same node may appear more than once."""

    gpus: GpuCount | None = None
    """GPUs of each task; by default 0 for ps, and an equal part of the node's GPUs for others."""

    share: bool = False
    """Whether its tasks share the GPUs that the node's other tasks do not use."""

    gpu_memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """The part of the memory of each GPU that a task uses: 0.2 is a fifth."""

    env: Annotated[dict[_VariableName, _VariableValue], Field(max_length=MAX_FLAGS)] = Field(
        default_factory=dict
    )
    """Environment variables of its tasks' programs by name, such as OMP_NUM_THREADS: 2."""


class LinkConfig(ConfigModel):
    """The network link of a node."""

    rate: _Rate | None = None
    """Rate of what the node sends, such as 100mbit."""

    delay: _Delay | None = None
    """Delay of the packets that the node sends, such as 5ms."""


class RunConfig(ConfigModel):
    """The run that `docker compose up` starts."""

    experiment: str
    """Name of the experiment; `lab experiments` lists them."""

    flags: Annotated[dict[_FlagName, _FlagValue], Field(max_length=MAX_FLAGS)] = Field(
        default_factory=dict
    )
    """Flags of its program by name, such as epochs: 5."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The experiment and its flags as arguments of a command line."""
        return (self.experiment, *(f"--{name}={value}" for name, value in self.flags.items()))


class Cluster(ConfigModel):
    """One host as a pseudo-cluster: its nodes, and the tasks that run on them."""

    version: Annotated[int, Field(ge=1, le=1)]
    """The version of this format."""

    name: Annotated[str, Field(pattern=PROJECT)]
    """Name of the project; the name of every container begins with it."""

    box: Box = Field(default_factory=Box)
    """What the host must have."""

    nodes: Annotated[dict[NodeName, Node], Field(min_length=1, max_length=MAX_TASKS)]
    """The nodes by name. The order matters: GPUs are allocated in it."""

    jobs: Annotated[dict[_JobName, Job], Field(min_length=1, max_length=MAX_TASKS)]
    """The TensorFlow jobs by name. The order matters: ports and GPUs are allocated in it."""

    port: _Port = DEFAULT_PORT
    """Port of the first task on a node; each further task on the node gets the next port."""

    links: dict[NodeName, LinkConfig] = Field(default_factory=dict, max_length=MAX_TASKS)
    """Network links by node; a node without one has the full speed of the host."""

    run: RunConfig | None = None
    """The run that `docker compose up` starts; by default it starts none and waits."""

    start: dict[_TaskName, _Moment] = Field(default_factory=dict, max_length=MAX_TASKS)
    """Tasks that start later than the others: after a time (10s), or after 500 steps."""

    needs: Literal["nothing"] | None = None
    """What a run needs to succeed: with "nothing", its tasks may train without each other."""

    packages: Annotated[tuple[_Package, ...], Field(max_length=MAX_FLAGS, strict=False)] = ()
    """Packages that your own program needs beside its framework, such as: boto3."""

    faults: Annotated[tuple[_Fault, ...], Field(max_length=MAX_TASKS, strict=False)] = ()
    """Faults that are injected into each run, such as: pause:10s worker-1 after 500 steps."""

    @cached_property
    def sha256(self) -> str:
        """Digest of the environment; comments and stated defaults do not change it.

        Nor do the keys of a run, `OF_A_RUN`. The order of nodes and jobs changes it, because GPUs
        and ports are allocated in that order.
        """
        content = self.model_dump(mode="json", exclude_defaults=True, exclude={*OF_A_RUN})
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def with_gpu_counts(self) -> Cluster:
        """Return the config with the number of its GPUs in place of each list."""
        nodes = {
            name: node.model_copy(update={"gpus": node.gpu_count})
            for name, node in self.nodes.items()
        }
        return self.model_copy(update={"nodes": nodes})

    @property
    def env(self) -> dict[str, dict[str, str]]:
        """The variables of the programs of each job that has any."""
        return {name: job.env for name, job in self.jobs.items() if job.env}

    @property
    def task_counts(self) -> dict[str, int]:
        """The number of tasks of each job."""
        return {name: len(job.on) for name, job in self.jobs.items()}

    @property
    def gpus_needed(self) -> int:
        """The number of GPUs that the host must have."""
        if self.box.gpus is not None:
            return self.box.gpus
        indices = [pin for node in self.nodes.values() for pin in node.pins if isinstance(pin, int)]
        requested = sum(node.gpu_count for node in self.nodes.values())
        return max([requested, *(index + 1 for index in indices)])
