"""The JSON file of a host, and the plain lines that the fake library reads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import pynvml
from pydantic import BaseModel, ConfigDict, Field

BOXES = Path(__file__).parent / "boxes"
MIB = 2**20
PATHS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
NVLINK = 2
OK, NOT_SUPPORTED = 0, 5

Failures = dict[str, str]
"""A function, and the error that it returns: `{"nvmlDeviceGetUUID": "GPU_IS_LOST"}`."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Process(_Strict):
    """A name that is None is hidden; memory that is None is unknown to the driver."""

    pid: int
    name: str | None = None
    memory_mib: int | None = None
    graphics: bool = False


class Slice(_Strict):
    uuid: str
    name: str
    memory_mib: int
    used_mib: int = 0
    power_mw: int | None = None
    sevenths: int
    processes: tuple[Process, ...] = ()
    fails: Failures = Field(default_factory=dict)


class Card(_Strict):
    """A GPU; fields that are None are not supported.

    Attributes:
        capability: The compute capability, `9.0`.
        cpus: As in `taskset`: `0-31,64-95`.
        mig: Whether MIG mode is on; None for a GPU without MIG.
        links: The end of each NVLink: a GPU by its index, a `switch`, or `off`.
    """

    uuid: str
    name: str
    memory_mib: int | None = None
    used_mib: int = 0
    utilisation_percent: int | None = None
    power_mw: int | None = None
    minor: int | None = None
    bus: str
    numa: int | None = None
    capability: str | None = None
    cpus: str | None = None
    mig: bool | None = None
    slices: tuple[Slice, ...] = ()
    links: tuple[int | Literal["switch", "off"], ...] = ()
    processes: tuple[Process, ...] = ()
    fails: Failures = Field(default_factory=dict)


class Box(_Strict):
    """A host.

    Attributes:
        about: The case that it is an example of.
        missing: Functions that this driver is too old to have.
        fails: Functions that fail for every GPU.
        hangs: Functions that never return.
        cards: In order of their index.
        p2p: Whether the driver reports what connects two GPUs.
        paths: The path between two GPUs, as `{"0-1": "PIX"}`; other pairs: `NODE` on one NUMA
            node, else `SYS`; None where the driver does not report it.
    """

    about: str
    driver: str
    cuda: int
    missing: tuple[str, ...] = ()
    fails: Failures = Field(default_factory=dict)
    hangs: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    p2p: bool = True
    paths: dict[str, Literal["PIX", "PXB", "PHB", "NODE", "SYS"]] | None = Field(
        default_factory=dict
    )


def load(name: str) -> Box:
    """A host by the name of its file."""
    return Box.model_validate_json((BOXES / f"{name}.json").read_bytes())


def lines(host: Box) -> str:
    text = "".join(f"{key} {value}\n" for key, value in _entries(host) if value is not None)
    if len(text.splitlines()) != text.count("\n") or len(text.splitlines()) > 4096:
        raise ValueError("a value with a line break, or more than the library has room for")
    return text


def _entries(host: Box) -> Iterator[tuple[str, Any]]:
    yield from {"driver": host.driver, "cuda": host.cuda, "count": len(host.cards)}.items()
    yield from _failures("", host.fails)
    yield from ((f"hang.{function}", 1) for function in host.hangs)
    for index, gpu in enumerate(host.cards):
        yield from _card(f"gpu.{index}.", gpu)
    for first, second in combinations(range(len(host.cards)), 2):
        yield from _pair(host, first, second)


def _failures(at: str, fails: Failures) -> Iterator[tuple[str, Any]]:
    for function, error in fails.items():
        if not hasattr(pynvml, function.removesuffix("_v2")) and not hasattr(pynvml, function):
            raise ValueError(f"pynvml has no {function}")
        yield f"{at}fail.{function}", getattr(pynvml, f"NVML_ERROR_{error}")


def _card(at: str, gpu: Card) -> Iterator[tuple[str, Any]]:
    yield from _shared(at, gpu)
    yield f"{at}utilisation", gpu.utilisation_percent
    yield f"{at}power", gpu.power_mw
    yield f"{at}minor", gpu.minor
    yield f"{at}bus", gpu.bus
    yield f"{at}numa", gpu.numa
    yield f"{at}capability", gpu.capability
    yield f"{at}cpus", None if gpu.cpus is None else ",".join(map(str, cpu_ids(gpu.cpus)))
    yield f"{at}mig", None if gpu.mig is None else int(gpu.mig)
    for position, part in enumerate(gpu.slices):
        yield from _shared(f"{at}mig.{position}.", part)
        yield f"{at}mig.{position}.power", part.power_mw
        yield f"{at}mig.{position}.sevenths", part.sevenths


def _shared(at: str, device: Card | Slice) -> Iterator[tuple[str, Any]]:
    """The common fields of a GPU and a slice."""
    yield f"{at}uuid", device.uuid
    yield f"{at}name", device.name
    yield f"{at}memory", None if device.memory_mib is None else device.memory_mib * MIB
    yield f"{at}used", device.used_mib * MIB
    yield from _failures(at, device.fails)
    for kind in ("compute", "graphics"):
        running = [each for each in device.processes if each.graphics == (kind == "graphics")]
        yield f"{at}{kind}", len(running)
        for position, process in enumerate(running):
            memory = process.memory_mib
            yield f"{at}{kind}.{position}.pid", process.pid
            yield f"{at}{kind}.{position}.memory", None if memory is None else memory * MIB
            yield f"process.{process.pid}", process.name


def _pair(host: Box, first: int, second: int) -> Iterator[tuple[str, Any]]:
    one, other = host.cards[first], host.cards[second]
    if host.paths is not None:
        near = "NODE" if one.numa == other.numa else "SYS"
        yield f"path.{first}.{second}", PATHS[host.paths.get(f"{first}-{second}", near)]
    if host.p2p:
        linked = second in one.links or ("switch" in one.links and "switch" in other.links)
        yield f"p2p.{first}.{second}.{NVLINK}", OK if linked else NOT_SUPPORTED


def cpu_ids(text: str) -> tuple[int, ...]:
    """`0-2,8` as the numbers that it means."""
    ends = [part.partition("-") for part in text.split(",")]
    return tuple(cpu for low, _, high in ends for cpu in range(int(low), int(high or low) + 1))
