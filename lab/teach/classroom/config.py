"""The class config: its keys, limits and defaults, and the rules that types cannot express."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from lab.base.units import duration_s
from lab.cluster.config.cluster import (
    MAX_CPUS,
    MAX_PORT,
    ConfigModel,
    GpuCount,
    Memory,
    NodeName,
    text_of,
)
from lab.cluster.config.diagnostics import Problem
from lab.cluster.config.load import parse_config, read_file
from lab.teach.classroom.names import COPIES

TEACHER: Final = "teacher"
"""The user who may open JupyterHub's admin page; the teacher has no seat."""

SEAT_PREFIX: Final = 28
"""Prefix length of the network of a seat, of the proxy, and of a run: 13 addresses are free."""

PRIVATE: Final = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
_NAME: Final = re.compile("[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?")
_LABEL: Final = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
# A name has at most 253 characters, with that of a seat in front. An IP address is none.
_DOMAIN: Final = re.compile(rf"(?=.{{1,200}}$)({_LABEL}\.)+(?!\d+$){_LABEL}")
_ADDRESS: Final = re.compile(r"([0-9.]+):([0-9]{1,5})")
_LONGEST_SLICE_S: Final = 24 * 3600

_NAME_TEXT: Final = "lower-case letters, digits and hyphens, at most 20, no hyphen at an end"
_SLICE_TEXT: Final = "a duration such as 10m or 1h30m, from 1s to 24h"
_NETWORK_TEXT: Final = "a private IPv4 network such as 10.89.0.0/16, of /28 or larger"
_DOMAIN_TEXT: Final = "a DNS name in lower-case letters, such as lab.example.org"
_ADDRESS_TEXT: Final = "an IPv4 address and a port, such as 127.0.0.1:8000"


class Address(NamedTuple):
    """The address of a listening socket."""

    host: IPv4Address
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def _matching(pattern: re.Pattern[str], expected: str) -> BeforeValidator:
    """Return a validator of texts that match a pattern as a whole."""

    def read(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(expected)
        return text

    return text_of(read, expected)


def _slice(text: str) -> float:
    seconds = duration_s(text)
    if seconds is None or not 1 <= seconds <= _LONGEST_SLICE_S:
        raise ValueError(_SLICE_TEXT)
    return seconds


def _network(text: str) -> IPv4Network:
    network = IPv4Network(text)
    if network.prefixlen > SEAT_PREFIX or not any(map(network.subnet_of, PRIVATE)):
        raise ValueError(_NETWORK_TEXT)
    return network


def _address(text: str) -> Address:
    match = _ADDRESS.fullmatch(text)
    if not match or not 1 <= int(match[2]) <= MAX_PORT:
        raise ValueError(_ADDRESS_TEXT)
    return Address(IPv4Address(match[1]), int(match[2]))


Slice = Annotated[float, text_of(_slice, _SLICE_TEXT)]
ClassName = Annotated[str, _matching(_NAME, _NAME_TEXT)]
DomainName = Annotated[str, _matching(_DOMAIN, _DOMAIN_TEXT)]
PrivateNetwork = Annotated[IPv4Network, text_of(_network, _NETWORK_TEXT)]
ListenAddress = Annotated[Address, text_of(_address, _ADDRESS_TEXT)]
FilePath = Annotated[Path, text_of(Path, "the path of a file")]


# The config.

MAX_SEATS: Final = 200

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


_Seats = Annotated[
    tuple[NodeName, ...],
    Field(min_length=1, max_length=MAX_SEATS, strict=False),
    BeforeValidator(_seats),
]


class SeatConfig(ConfigModel):
    """What each seat gets."""

    gpus: Annotated[SeatGpus, BeforeValidator(_gpus)] = Field(default_factory=SeatGpus)
    """GPUs: a number, or a mapping."""

    cpus: Annotated[float, Field(gt=0, le=MAX_CPUS)] | None = None
    """Limit of CPUs; by default none."""

    memory: Memory | None = None
    """Limit of main memory, in bytes; by default none."""

    disk: Memory | None = None
    """Limit of the volume of the seat, in bytes; by default none."""


class Tls(ConfigModel):
    """The files for HTTPS."""

    certificate: FilePath
    """The certificate, with its chain, as PEM."""

    key: FilePath
    """The private key of the certificate, as PEM."""


class ClassConfig(ConfigModel):
    """A class: its seats, and what each of them gets."""

    version: Annotated[int, Field(ge=1, le=1)]
    """The version of this format."""

    name: ClassName
    """Name of the class; the name of every container begins with it."""

    seats: _Seats
    """The names of the seats; the file may have their number."""

    seat: SeatConfig = Field(default_factory=SeatConfig)
    """What each seat gets."""

    cpu_runs: Annotated[int, Field(ge=0, le=MAX_SEATS)] = 0
    """Number of runs without GPUs that may have containers on the host at the same time."""

    cluster: FilePath = Path("cluster.yaml")
    """The cluster config that each seat gets."""

    slice: Slice = 600.0
    """The longest turn of a run in the queue, in seconds."""

    network: PrivateNetwork = IPv4Network("10.89.0.0/16")
    """The range from which the class takes its /28 networks."""

    address: ListenAddress = Address(IPv4Address("127.0.0.1"), 8000)
    """Where the proxy listens."""

    domain: DomainName | None = None
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
    elif config.address.host.is_unspecified and config.domain is None:
        message = "browsers need one address; name that of this host, or add `domain`"
        yield Problem(("address",), message)


def _seat_names(names: Sequence[str]) -> Iterator[Problem]:
    for index, name in enumerate(names):
        if name in {TEACHER, COPIES}:
            message = f"the class itself uses the name {name}; give the seat another name"
            yield Problem(("seats", index), message)
        elif name in names[:index]:
            message = f"two seats have the name {name}; give each seat its own name"
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
    paths: dict[str, object] = {"cluster": folder / config.cluster}
    if tls := config.tls:
        files = {"certificate": folder / tls.certificate, "key": folder / tls.key}
        paths["tls"] = tls.model_copy(update=files)
    return config.model_copy(update=paths)
