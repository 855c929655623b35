"""Plans a class: what each seat gets of a host, or all shortages of the host at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from itertools import count, islice
from pathlib import Path

from lab.base.errors import ConfigError
from lab.base.formatting import about, counted
from lab.base.units import memory_for_people
from lab.cluster.config import Cluster
from lab.cluster.config.diagnostics import Problem, texts
from lab.cluster.gpu import Inventory
from lab.cluster.placement.gpu_selection import select_gpus
from lab.cluster.placement.place import held_in_use
from lab.teach.classroom.config import SEAT_PREFIX, ClassConfig


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


@dataclass(frozen=True, slots=True)
class SeatPlan:
    """What one seat gets.

    Attributes:
        name: Its name.
        gpus: The UUIDs of its GPUs or MIG slices.
        network: The network that it shares with the proxy alone.
        cpus: Its limit of CPUs, or None.
        memory_bytes: Its limit of main memory, or None.
        disk_bytes: The limit of its volume, or None.
    """

    name: str
    gpus: tuple[str, ...]
    network: IPv4Network
    cpus: float | None
    memory_bytes: int | None
    disk_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPlan:
    """A class on a host. The same config and host always give the same plan.

    Attributes:
        name: The name of the class.
        seats: The seats.
        queue_gpus: The UUIDs of the GPUs on which queued runs take turns.
        proxy_network: The network of the proxy and the hub.
        run_networks: A network for each run of the queue that can be active: first one for each
            GPU of the queue, then those for runs without GPUs.
        address: The IP address where the proxy listens.
        port: Its port.
        domain: JupyterHub's DNS name, with a name for each seat below it; "" if all share one name,
            so that the pages of a seat can act as those of other seats and of JupyterHub.
        tls: The absolute paths of the files for HTTPS, `certificate` and `key`; or None.
        slice_s: The longest turn of a run in the queue if others wait, in seconds.
        disk_enforced: Whether each seat has a file system of its own with its limit.
        notices: One line each, for the teacher.
    """

    name: str
    seats: tuple[SeatPlan, ...]
    queue_gpus: tuple[str, ...] = ()
    proxy_network: IPv4Network
    run_networks: tuple[IPv4Network, ...] = ()
    address: str = ""
    port: int = 0
    domain: str = ""
    tls: dict[str, Path] | None = None
    slice_s: float = 600.0
    disk_enforced: bool = False
    notices: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The address for browsers."""
        scheme, default = ("https", 443) if self.tls else ("http", 80)
        # As browsers write it: JupyterHub compares it with the origin of a request.
        port = "" if self.port == default else f":{self.port}"
        return f"{scheme}://{self.domain or self.address}{port}"

    @property
    def reach(self) -> str:
        """A notice if browsers on other hosts cannot reach the class; otherwise ""."""
        if not self.domain.endswith(".localhost"):
            return ""
        notice = f"only browsers on this host reach {self.url}"
        return f"{notice}; to let others in, set `address`, `domain` and `tls` in the class config"

    @property
    def gpu_users(self) -> dict[str, list[str]]:
        """The seat that has a GPU, or `queue`, by the GPU's UUID."""
        of_seats = {gpu: [seat.name] for seat in self.seats for gpu in seat.gpus}
        return of_seats | {gpu: ["queue"] for gpu in self.queue_gpus}


def plan_class(config: ClassConfig, host: HostFacts, cluster: Cluster) -> ClassPlan:
    """Plan a class on a host, with the cluster config that each seat gets.

    Raises:
        ConfigError: The host has too little; the error lists all shortages.
    """
    seat, gpus = config.seat, _gpus(host.inventory)
    runs = config.cpu_runs + (len(gpus) if seat.gpus.queue else 0)
    if problems := list(_shortages(config, host, cluster, len(gpus), runs)):
        raise ConfigError(texts(problems))
    proxy, *networks = _networks(config, runs)
    own = seat.gpus.count
    # Browsers know the names below `localhost` without DNS.
    local = f"{config.name}.localhost" if config.address.host.is_loopback else ""
    plan = ClassPlan(
        name=config.name,
        seats=tuple(
            SeatPlan(name, gpus[at : at + own], network, seat.cpus, seat.memory, seat.disk)
            for name, network, at in zip(config.seats, networks, count(0, own), strict=False)
        ),
        queue_gpus=gpus if seat.gpus.queue else (),
        proxy_network=proxy,
        run_networks=tuple(networks[len(config.seats) :]),
        address=str(config.address.host),
        port=config.address.port,
        domain=config.domain or local,
        # JupyterHub has another directory.
        tls={name: path.absolute() for name, path in config.tls} if config.tls else None,
        slice_s=config.slice,
        disk_enforced=seat.disk is not None and host.disk_unenforced == "",
    )
    return replace(plan, notices=tuple(_notices(plan, config, host)))


def _gpus(inventory: Inventory) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs of a host; neighbours in this order are close to each other."""
    devices = inventory.whole_gpus
    if devices:
        devices = select_gpus({"": len(devices)}, devices, inventory.pairs)[""].gpus
    # MIG slices only where there is nothing else.
    return tuple(device.device_id for device in devices or inventory.slices)


def _networks(config: ClassConfig, runs: int) -> list[IPv4Network]:
    """Return the networks of the proxy, the seats and the runs, as many as the range has."""
    needed = 1 + len(config.seats) + runs
    return list(islice(config.network.subnets(new_prefix=SEAT_PREFIX), needed))


def _users(seats: int, runs: int) -> str:
    """Return what uses the host, for messages: the seats, and the runs of the queue if any."""
    of_queue = f" and {counted(runs, 'run')} of the queue" if runs else ""
    return counted(seats, "seat") + of_queue


# Notices.


def _notices(plan: ClassPlan, config: ClassConfig, host: HostFacts) -> Iterator[str]:
    """Yield a line for everything that may surprise the teacher."""
    if not plan.domain:
        yield (
            "all seats share one address: a page written by one student can act as any student"
            " who opens it, and there is no admin page; give each seat a name with `domain:`"
        )
    if plan.reach:
        yield plan.reach
    if users := plan.gpu_users:
        yield from host.inventory.notices
        if plan.queue_gpus:
            yield (
                f"{counted(len(plan.seats), 'seat')} take turns on {counted(len(users), 'GPU')}: "
                f"`lab run --backend class`, {about(plan.slice_s)} at most"
            )
        for line in held_in_use(users, host.inventory):
            yield f"warning: {line}"
    seat = config.seat
    limits = {"CPUs": seat.cpus, "memory": seat.memory, "disk": seat.disk}
    if missing := [name for name, limit in limits.items() if limit is None]:
        yield f"no limit on {', '.join(missing)}: one seat can use up the whole host"
    if seat.disk is not None and host.disk_unenforced:
        yield f"disk: not enforced: {host.disk_unenforced}"


# Shortages.


def _shortages(
    config: ClassConfig, host: HostFacts, cluster: Cluster, gpus: int, runs: int
) -> Iterator[Problem]:
    """Yield a problem for each part of the class that the host cannot provide."""
    seat, inventory, seats = config.seat, host.inventory, len(config.seats)
    if message := _gpu_shortage(config, inventory, gpus):
        yield Problem(("seat", "gpus"), message)
    if message := _cluster_problem(config, cluster, gpus):
        yield Problem(("cluster",), message)
    if seat.cpus is not None and inventory.cpus is not None and seat.cpus > inventory.cpus:
        message = (
            f"a seat needs {seat.cpus:g} CPUs, but this host has {inventory.cpus}; lower `cpus`"
        )
        yield Problem(("seat", "cpus"), message)
    yield from _bytes_shortage("memory", seat.memory, inventory.memory_bytes, seats, runs)
    yield from _bytes_shortage("disk", seat.disk, host.disk_free_bytes, seats, 0)
    for message in _network_problems(config, runs, host.networks):
        yield Problem(("network",), message)


def _gpu_shortage(config: ClassConfig, inventory: Inventory, gpus: int) -> str:
    wanted, seats = config.seat.gpus, len(config.seats)
    if max(wanted.count * seats, wanted.queue) <= gpus:
        return ""
    if not gpus:
        why = f" ({inventory.notices[-1]})" if inventory.notices else ""
        return f"this host has no GPU{why}; use `gpus: 0`, so that every seat trains on CPUs"
    needs = f"{counted(seats, 'seat')} with {counted(wanted.count, 'GPU')} each need "
    has = f"{counted(wanted.count * seats, 'GPU')}, this host has {gpus}"
    return f"{needs}{has}; let them take turns with `gpus: {{queue: true}}`"


def _cluster_problem(config: ClassConfig, cluster: Cluster, gpus_of_host: int) -> str:
    """Return why `lab run` would refuse the cluster config in every seat; "" if it would not."""
    gpus, needed, name = config.seat.gpus, cluster.gpus_needed, config.cluster
    has = gpus_of_host if gpus.queue else gpus.count
    if not needed or not has:  # it trains on CPUs, or the host has a shortage of its own
        return ""
    for node, planned in cluster.nodes.items():
        if any(isinstance(pin, str) for pin in planned.pins):
            message = f"nodes.{node}.gpus in {name} names a GPU by its UUID, and seats have"
            return f"{message} different GPUs; state a number of GPUs there"
    if needed <= has:
        return ""
    message = f"{name} needs {counted(needed, 'GPU')}, but"
    where = "the queue" if gpus.queue else "a seat"
    return f"{message} {where} has {has}; name a smaller config, such as clusters/book.yaml"


def _bytes_shortage(
    key: str, limit: int | None, has: int | None, seats: int, runs: int
) -> Iterator[Problem]:
    """Yield a problem if the seats, and runs with the same limit, need more than the host has."""
    needed = (limit or 0) * (seats + runs)
    if limit is None or has is None or needed <= has:
        return
    noun = "free disk space" if key == "disk" else key
    message = (
        f"{_users(seats, runs)} with {memory_for_people(limit)} each need "
        f"{memory_for_people(needed)}, this host has {memory_for_people(has)} of {noun}"
    )
    yield Problem(("seat", key), f"{message}; lower `{key}`, or use fewer seats")


def _network_problems(config: ClassConfig, runs: int, used: Sequence[IPv4Network]) -> Iterator[str]:
    """Yield a message if the range is too small, and if the host uses some of the networks."""
    needed, networks = 1 + len(config.seats) + runs, _networks(config, runs)
    if len(networks) < needed:
        message = f"{_users(len(config.seats), runs)} need {needed} networks of /{SEAT_PREFIX} with"
        fix = f"use a range of /{SEAT_PREFIX - (needed - 1).bit_length()}"
        yield f"{message} that of the proxy, and {config.network} has {len(networks)}; {fix}"
    if taken := [network for network in used if any(map(network.overlaps, networks))]:
        message = f"the class takes its networks from {networks[0]} on, and this host uses"
        yield f"{message} {taken[0]}; use another private range of this size"
