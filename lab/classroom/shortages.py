"""What a class needs of a host, and all that the host lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import islice
from typing import Final

from lab.classroom.config import ClassConfig, SeatGpus
from lab.classroom.values import PRIVATE, SEAT_PREFIX
from lab.config import Cluster
from lab.config.diagnostics import Problem, path_text
from lab.formatting import counted
from lab.gpu import Gpu, Inventory
from lab.text import short
from lab.units import MEMORY, MIB, exact, memory_for_people

_LEAST_BYTES: Final = 64 * MIB
_MOST_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a class can take of a host.

    Attributes:
        inventory: The GPUs, CPUs and memory.
        disk_free_bytes: Free bytes where the volumes of seats are; None if unknown.
        disk_unenforced: Why the host cannot limit the volume of a seat; "" if it can, None if
            unknown.
        networks: The networks that the host uses, without those of this class.
    """

    inventory: Inventory
    disk_free_bytes: int | None = None
    disk_unenforced: str | None = None
    networks: tuple[IPv4Network, ...] = ()


def usable_gpus(gpus: SeatGpus, inventory: Inventory) -> Sequence[Gpu]:
    """Return the GPUs that the class can use."""
    return inventory.slices if gpus.mig else inventory.whole_gpus


def run_count(config: ClassConfig, devices: Sequence[Gpu]) -> int:
    """Return the number of runs of the queue that can be active, with and without GPUs."""
    return config.cpu_runs + (len(devices) if config.seat.gpus.queue else 0)


def class_networks(config: ClassConfig, devices: Sequence[Gpu]) -> list[IPv4Network]:
    """Return the networks of the proxy, the seats and the runs, as far as the range has them."""
    needed = 1 + len(config.seats) + run_count(config, devices)
    return list(islice(config.network.subnets(new_prefix=SEAT_PREFIX), needed))


def users_of(seats: int, runs: int) -> list[str]:
    """Return what uses the host, for messages: the seats, and the runs of the queue if any."""
    return [counted(seats, "seat"), *([f"{counted(runs, 'run')} of the queue"] if runs else [])]


def shortages(config: ClassConfig, host: HostFacts, cluster: Cluster) -> Iterator[Problem]:
    """Yield a problem for each part of the class that the host cannot provide."""
    seat, seats = config.seat, len(config.seats)
    inventory = host.inventory
    devices = usable_gpus(seat.gpus, inventory)
    if shortage := _gpu_shortage(seat.gpus, seats, devices, inventory):
        yield shortage
    if problem := _cluster_problem(config, cluster, devices):
        yield problem
    if seat.cpus is not None and inventory.cpus is not None and seat.cpus > inventory.cpus:
        message = f"a seat needs {seat.cpus:g} CPUs, this host has {inventory.cpus}; "
        yield Problem(("seat", "cpus"), f"{message}use `cpus: {inventory.cpus}` or less")
    runs = run_count(config, devices)
    has = inventory.memory_bytes
    yield from _bytes_shortage("memory", "memory", seat.memory, has, (seats, runs))
    has = host.disk_free_bytes
    yield from _bytes_shortage("disk", "free disk space", seat.disk, has, (seats, 0))
    yield from _network_problems(config, class_networks(config, devices), runs, host.networks)


def _gpu_shortage(
    gpus: SeatGpus, seats: int, devices: Sequence[Gpu], inventory: Inventory
) -> Problem | None:
    if not gpus.count and not gpus.queue:
        return None
    loc, noun, has = ("seat", "gpus"), "MIG device" if gpus.mig else "GPU", len(devices)
    if not has:
        return Problem(loc, _no_devices(gpus, inventory))
    if gpus.count > has:
        message = f"a seat needs {counted(gpus.count, noun)}, this host has {has}"
        ways = f"`count: {has}` or less, or {_in_gpus(gpus, queue=True)}"
        return Problem(loc, f"{message}; use {ways}")
    needed = 0 if gpus.share else seats * gpus.count
    if needed <= has:
        return None
    message = (
        f"{counted(seats, 'seat')} with {counted(gpus.count, noun)} each need "
        f"{counted(needed, noun)}, this host has {has}"
    )
    ways = f"{_in_gpus(gpus, queue=True)}, {_in_gpus(gpus, share=True)}"
    return Problem(loc, f"{message}; use {ways}, or {counted(has // gpus.count, 'seat')} at most")


def _in_gpus(gpus: SeatGpus, *, queue: bool = False, share: bool = False) -> str:
    """Return another value of `gpus`, as in the file."""
    parts = [
        *([f"count: {gpus.count}"] if not queue else []),
        *(["mig: true"] if gpus.mig else []),
        *(["share: true"] if share else []),
        *(["queue: true"] if queue else []),
    ]
    return f"`gpus: {{{', '.join(parts)}}}`"


def _no_devices(gpus: SeatGpus, inventory: Inventory) -> str:
    """Return the message for a host that has no GPU of the kind that the class needs."""
    if gpus.mig and inventory.gpus:
        has = counted(len(inventory.whole_gpus), "whole GPU")
        fix = "remove `mig: true`, or create MIG devices as root (`nvidia-smi mig -cgi`)"
        return f"this host has no MIG device and {has}; {fix}"
    if inventory.gpus:
        has = counted(len(inventory.slices), "MIG device")
        return f"this host has no whole GPU and {has}; add `mig: true`"
    why = f" ({short(inventory.notices[-1])})" if inventory.notices else ""
    return f"this host has no GPU{why}; use `gpus: 0`: then every seat trains on CPUs"


def _bytes_shortage(
    key: str, noun: str, each: int | None, has: int | None, counts: tuple[int, int]
) -> Iterator[Problem]:
    """Yield a problem if the seats, and runs with the same limit, need more than the host has."""
    seats, runs = counts
    users = seats + runs
    if each is None or has is None or each * users <= has:
        return
    ways = []
    if has // users >= _LEAST_BYTES:
        ways.append(f"`{key}: {exact(has // users // MIB * MIB, MEMORY)}` or less")
    if has // each > runs:
        ways.append(f"{counted(has // each - runs, 'seat')} at most")
    message = (
        f"{' and '.join(users_of(seats, runs))} with {memory_for_people(each)} each need "
        f"{memory_for_people(each * users)}, this host has {memory_for_people(has)} of {noun}"
    )
    yield Problem(
        ("seat", key),
        f"{message}; use {', or '.join(ways) or 'fewer and smaller seats'}",
    )


def _network_problems(
    config: ClassConfig, networks: Sequence[IPv4Network], runs: int, used: Sequence[IPv4Network]
) -> Iterator[Problem]:
    """Yield a problem if the range is too small, and if the host uses some of the networks."""
    needed = len(config.seats) + 1 + runs
    if len(networks) < needed:
        users = ", ".join(users_of(len(config.seats), runs))
        message = f"{users} and the proxy need {needed} networks of /{SEAT_PREFIX}, and"
        fix = f"use a range of /{SEAT_PREFIX - (needed - 1).bit_length()}"
        yield Problem(("network",), f"{message} {config.network} has {len(networks)}; {fix}")
    taken = [each for each in dict.fromkeys(used) if any(map(each.overlaps, networks))]
    if taken:
        shown = ", ".join(map(str, taken[:_MOST_SHOWN])) + (", …" if taken[_MOST_SHOWN:] else "")
        message = f"the class takes its networks from {networks[0]} on, and this host uses {shown}"
        yield Problem(("network",), f"{message}; use {_another_range(config.network, used)}")


def _another_range(network: IPv4Network, used: Sequence[IPv4Network]) -> str:
    """Return a private range of the same size that the host does not use."""
    for private in PRIVATE:
        if private.prefixlen <= network.prefixlen:
            for each in private.subnets(new_prefix=network.prefixlen):
                if not any(map(each.overlaps, used)):
                    return f"`network: {each}`"
    return "another range"


def _cluster_problem(
    config: ClassConfig, cluster: Cluster, devices: Sequence[Gpu]
) -> Problem | None:
    """Return a problem if `lab run` would refuse the cluster config in every seat."""
    gpus, needed = config.seat.gpus, cluster.gpus_needed
    if not needed or not (gpus.count or gpus.queue):
        return None
    name = short(str(config.cluster))
    for node, each in cluster.nodes.items():
        if any(isinstance(pin, str) for pin in each.pins):
            where = path_text(("nodes", node, "gpus"))
            message = f"{where} in {name} names a GPU by its UUID, and seats have different GPUs"
            return Problem(("cluster",), f"{message}; state a number of GPUs there")
    has = len(devices) if gpus.queue else gpus.count
    if needed <= has or not has:  # a host without any GPU has a shortage of its own
        return None
    where = "the queue" if gpus.queue else "a seat"
    message = f"{name} needs {counted(needed, 'GPU')}, and {where} has {has}"
    ways = "name a smaller config, such as clusters/book.yaml for 1 GPU"
    more = "" if gpus.queue else f", or use `count: {needed}`"
    return Problem(("cluster",), f"{message}; {ways}{more}")
