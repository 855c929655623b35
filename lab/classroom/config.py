"""The class config: its keys, limits and defaults, and the rules that types cannot express."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from lab.classroom import values
from lab.classroom.names import COPIES
from lab.classroom.values import Address, FilePath, ListenAddress
from lab.config.diagnostics import Problem
from lab.config.fields import MAX_CPUS, ConfigModel, GpuCount, Memory, NodeName
from lab.config.load import parse_config, read_file

DEFAULT_FILE: Final = "class.yaml"
TEACHER: Final = "teacher"
"""The user who may open JupyterHub's admin page; the teacher has no seat."""

MAX_SEATS: Final = 200
MAX_CPU_RUNS: Final = 200

_GPUS_TEXT: Final = "a number, such as 1, or {queue: true}"
_SEATS_TEXT: Final = (
    f"a number from 1 to {MAX_SEATS}, such as 30, or a list of names, such as [ada, grace]"
)


def _seats(value: object) -> object:
    """Return the names for a number of seats: `seat-01`, `seat-02` and so on."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEATS:
        width = max(2, len(str(value)))
        return tuple(f"seat-{number:0{width}}" for number in range(1, value + 1))
    raise PydanticCustomError("expected", "must be {expected}", {"expected": _SEATS_TEXT})


def _gpus(value: object) -> object:
    """Return the mapping for a number of GPUs."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"count": value}
    if isinstance(value, dict | SeatGpus):
        return value
    raise PydanticCustomError("expected", "must be {expected}", {"expected": _GPUS_TEXT})


class SeatGpus(ConfigModel):
    """The GPUs of each seat."""

    count: GpuCount = 0
    """Number of GPUs of each seat."""

    queue: bool = False
    """Whether seats hold no GPU, and runs take turns on all GPUs of the host."""


_Cpus = Annotated[float, Field(gt=0, le=MAX_CPUS)]
_Gpus = Annotated[SeatGpus, BeforeValidator(_gpus)]
_CpuRuns = Annotated[int, Field(ge=0, le=MAX_CPU_RUNS)]
_Seats = Annotated[
    tuple[NodeName, ...],
    Field(min_length=1, max_length=MAX_SEATS, strict=False),
    BeforeValidator(_seats),
]


class SeatConfig(ConfigModel):
    """What each seat gets."""

    gpus: _Gpus = Field(default_factory=SeatGpus)
    """GPUs: a number, or a mapping."""

    cpus: _Cpus | None = None
    """Limit of CPUs; by default none."""

    memory: Memory | None = None
    """Limit of main memory, in bytes; by default none."""

    disk: values.Disk | None = None
    """Limit of the volume of the seat, in bytes; by default none."""


class Tls(ConfigModel):
    """The files for HTTPS."""

    certificate: FilePath
    """The certificate, with its chain, as PEM."""

    key: FilePath
    """The private key of the certificate, as PEM."""

    def below(self, folder: Path) -> Tls:
        """Return the files by paths that begin at a directory, unless they are absolute."""
        files = {"certificate": folder / self.certificate, "key": folder / self.key}
        return self.model_copy(update=files)


_DEFAULT_ADDRESS: Final = Address(IPv4Address("127.0.0.1"), 8000)


class ClassConfig(ConfigModel):
    """A class: its seats, and what each of them gets."""

    version: Annotated[int, Field(ge=1, le=1)]
    """The version of this format."""

    name: values.ClassName
    """Name of the class; the name of every container begins with it."""

    seats: _Seats
    """The names of the seats; the file may have their number."""

    seat: SeatConfig = Field(default_factory=SeatConfig)
    """What each seat gets."""

    cpu_runs: _CpuRuns = 0
    """Number of runs without GPUs that may have containers on the host at the same time."""

    cluster: FilePath = Path("cluster.yaml")
    """The cluster config that each seat gets."""

    slice: values.Slice = timedelta(minutes=10)
    """The longest turn of a run in the queue."""

    network: values.PrivateNetwork = IPv4Network("10.89.0.0/16")
    """The range from which the class takes its /28 networks."""

    address: ListenAddress = _DEFAULT_ADDRESS
    """Where the proxy listens."""

    domain: values.DomainName | None = None
    """JupyterHub's DNS name; each seat has a name of its own below it."""

    tls: Tls | None = None
    """The files for HTTPS; an address that other hosts reach needs them."""


def _validate(config: ClassConfig) -> Iterator[Problem]:
    """Yield a problem for every rule that a config breaks."""
    yield from _seat_names(config.seats)
    if config.seat.gpus.queue and config.seat.gpus.count:
        message = "seats in the queue hold no GPU; remove `count` or `queue`"
        yield Problem(("seat", "gpus", "count"), message)
    if not config.address.host.is_loopback and config.tls is None:
        message = (
            f"other hosts reach {config.address}, and passwords must not travel in the clear; add "
            "`tls: {certificate: cert.pem, key: key.pem}`, or use 127.0.0.1"
        )
        yield Problem(("address",), message)


def _seat_names(names: Sequence[str]) -> Iterator[Problem]:
    for index, name in enumerate(names):
        if name in {TEACHER, COPIES}:
            message = f"the class itself uses the name {name}; give the seat another name"
            yield Problem(("seats", index), message)
        elif name in names[:index]:
            message = f"a second seat has the name {name}; give each seat its own name"
            yield Problem(("seats", index), message)


_FIX: Final = (
    "name a class config with `--file FILE`, or copy the example of docs/reference/class.md"
)


def load_class(path: Path) -> ClassConfig:
    """Read a class config; its paths then begin at the directory of the file.

    Raises:
        InputError: There is no such file, or it cannot be read.
        ConfigError: The config is invalid; the error lists all its problems.
    """
    return parse_class(read_file(path, _FIX), str(path))


def parse_class(data: bytes, file: str) -> ClassConfig:
    """Read a class config from the content of a file; the paths in it begin at its directory.

    Raises:
        ConfigError: The config is invalid; the error lists all its problems.
    """
    config = parse_config(ClassConfig, _validate, data, file)
    folder = Path(file).parent
    tls = config.tls and config.tls.below(folder)
    return config.model_copy(update={"cluster": folder / config.cluster, "tls": tls})
