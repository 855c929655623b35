"""Plans a class: what each seat gets of a host, or all shortages of the host at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from lab.classroom.config import ClassConfig, SeatGpus
from lab.classroom.values import SEAT_PREFIX
from lab.config import Cluster
from lab.config.diagnostics import Problem, path_text, texts
from lab.errors import ConfigError
from lab.formatting import about, counted
from lab.gpu import Gpu, Inventory
from lab.placement.gpu_selection import select_gpus
from lab.placement.gpu_usage import held_in_use
from lab.text import short
from lab.units import MEMORY, MIB, exact, memory_for_people

_LEAST_BYTES: Final = 64 * MIB
_MOST_SHOWN: Final = 4
_IN_TURNS: Final = "`gpus: {queue: true}`"


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


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files for HTTPS; their paths are absolute."""

    certificate: Path
    key: Path


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
        domain: JupyterHub's DNS name, with a name for each seat below it; "" if browsers reach all
            by one name, so that pages of seats can act as each other and as JupyterHub's own.
        tls: The files for HTTPS, or None.
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
    tls: TlsFiles | None = None
    slice_s: float = 600.0
    disk_enforced: bool = False
    notices: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The address for browsers."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        scheme, default = ("https", 443) if self.tls else ("http", 80)
        # As browsers write it: JupyterHub compares it with the origin of a request.
        port = "" if self.port == default else f":{self.port}"
        return f"{scheme}://{self.domain or address}{port}"

    @property
    def gpu_users(self) -> dict[str, list[str]]:
        """The names of the seats that use each GPU, by its UUID; or `queue`."""
        users = {gpu: ["queue"] for gpu in self.queue_gpus}
        for seat in self.seats:
            for gpu in seat.gpus:
                users.setdefault(gpu, []).append(seat.name)
        return users

    def to_json(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        return dict(msgspec.to_builtins(self, enc_hook=str))


def plan_class(config: ClassConfig, host: HostFacts, cluster: Cluster) -> ClassPlan:
    """Plan a class on a host, with the cluster config that each seat gets.

    Raises:
        ConfigError: The host has too little; the error lists all shortages.
    """
    names, seat, tls = config.seats, config.seat, config.tls
    # MIG slices only where there is nothing else.
    devices = host.inventory.whole_gpus or host.inventory.slices
    runs = config.cpu_runs + (len(devices) if seat.gpus.queue else 0)
    if problems := list(_shortages(config, host, cluster, devices, runs)):
        raise ConfigError(texts(problems))
    gpus = _gpus_by_seat(config, devices, host.inventory)
    proxy, *networks = _networks(config, runs)
    # Browsers know the names below `localhost` without DNS.
    local = f"{config.name}.localhost" if config.address.host.is_loopback else ""
    plan = ClassPlan(
        name=config.name,
        seats=tuple(
            SeatPlan(name, gpus[name], network, seat.cpus, seat.memory, seat.disk)
            for name, network in zip(names, networks, strict=False)
        ),
        queue_gpus=tuple(gpu.device_id for gpu in devices) if seat.gpus.queue else (),
        proxy_network=proxy,
        run_networks=tuple(networks[len(names) :]),
        address=str(config.address.host),
        port=config.address.port,
        domain=config.domain or local,
        # JupyterHub has another directory.
        tls=TlsFiles(tls.certificate.absolute(), tls.key.absolute()) if tls else None,
        slice_s=config.slice.total_seconds(),
        disk_enforced=seat.disk is not None and host.disk_unenforced == "",
    )
    return replace(plan, notices=tuple(_notices(plan, config, host, cluster)))


# Allocation.


def _gpus_by_seat(
    config: ClassConfig, devices: Sequence[Gpu], inventory: Inventory
) -> dict[str, tuple[str, ...]]:
    """Return the UUIDs of each seat's GPUs. There must be enough."""
    count = config.seat.gpus.count
    if inventory.whole_gpus:
        # Neighbours in this order are close to each other.
        devices = select_gpus({"": len(devices)}, devices, inventory.pairs)[""].gpus
    # In turn, so that the numbers of seats of two GPUs differ by at most one.
    return {
        name: tuple(
            devices[(seat * count + place) % len(devices)].device_id for place in range(count)
        )
        for seat, name in enumerate(config.seats)
    }


# Notices.


def _notices(
    plan: ClassPlan, config: ClassConfig, host: HostFacts, cluster: Cluster
) -> Iterator[str]:
    """Yield a line for everything that works in another way than the teacher may expect."""
    if not plan.domain:
        yield (
            "all seats have one address: a page that a student wrote can act as each student who "
            "opens it, and there is no admin page; give each seat a name with `domain:`"
        )
    yield from _gpu_notices(plan, config, host.inventory)
    yield from _cluster_notices(config, cluster)
    seat, cpus = config.seat, host.inventory.cpus
    seats, runs = len(plan.seats), len(plan.run_networks)
    if seat.cpus is not None and cpus is not None and seat.cpus * (seats + runs) > cpus:
        yield (
            f"{' and '.join(_users(seats, runs))} may use {seat.cpus * (seats + runs):g} "
            f"CPUs together, this host has {cpus}: programs that compute at once are slower"
        )
    limits = {"CPUs": seat.cpus, "memory": seat.memory, "disk": seat.disk}
    if missing := [name for name, limit in limits.items() if limit is None]:
        yield f"no limit of {', '.join(missing)}: one seat can take all that the host has"
    if seat.disk is not None and host.disk_unenforced is not None:
        yield (
            f"disk: not enforced: {host.disk_unenforced}"
            if host.disk_unenforced
            else f"disk: enforced: each seat has a file system of {memory_for_people(seat.disk)}"
        )


def _gpu_notices(plan: ClassPlan, config: ClassConfig, inventory: Inventory) -> Iterator[str]:
    users = plan.gpu_users
    if not users:
        return
    yield from inventory.notices
    most = max(map(len, users.values()))
    if most > 1:
        yield f"up to {most} seats share a GPU: their trainings also share its memory"
    if plan.queue_gpus:
        turn = about(plan.slice_s)
        yield (
            f"{counted(len(plan.seats), 'seat')} take turns on "
            f"{counted(len(plan.queue_gpus), 'GPU')}: `lab run --backend class`, {turn} at most"
        )
    for line in held_in_use(users, inventory):
        yield f"warning: {line}"


def _cluster_notices(config: ClassConfig, cluster: Cluster) -> Iterator[str]:
    gpus, needed, name = config.seat.gpus, cluster.gpus_needed, short(str(config.cluster))
    if needed and not gpus.count and not gpus.queue:
        yield f"{name} asks for {counted(needed, 'GPU')}, and a seat has none: it trains on CPUs"
    elif needed and gpus.queue:
        yield f"without `--backend class`, a seat trains {name} on CPUs: it holds no GPU"


# Shortages.


def _networks(config: ClassConfig, runs: int) -> list[IPv4Network]:
    """Return the networks of the proxy, the seats and the runs, as far as the range has them."""
    needed = 1 + len(config.seats) + runs
    return list(islice(config.network.subnets(new_prefix=SEAT_PREFIX), needed))


def _users(seats: int, runs: int) -> list[str]:
    """Return what uses the host, for messages: the seats, and the runs of the queue if any."""
    return [counted(seats, "seat"), *([f"{counted(runs, 'run')} of the queue"] if runs else [])]


def _shortages(
    config: ClassConfig, host: HostFacts, cluster: Cluster, devices: Sequence[Gpu], runs: int
) -> Iterator[Problem]:
    """Yield a problem for each part of the class that the host cannot provide."""
    seat, inventory, users = config.seat, host.inventory, (len(config.seats), runs)
    if message := _gpu_shortage(seat.gpus, len(config.seats), len(devices), inventory):
        yield Problem(("seat", "gpus"), message)
    if message := _cluster_problem(config, cluster, len(devices)):
        yield Problem(("cluster",), message)
    if seat.cpus is not None and inventory.cpus is not None and seat.cpus > inventory.cpus:
        message = f"a seat needs {seat.cpus:g} CPUs, this host has {inventory.cpus}; "
        yield Problem(("seat", "cpus"), f"{message}use `cpus: {inventory.cpus}` or less")
    yield from _bytes_shortage("memory", seat.memory, inventory.memory_bytes, *users)
    yield from _bytes_shortage("disk", seat.disk, host.disk_free_bytes, len(config.seats), 0)
    for message in _network_problems(config, runs, host.networks):
        yield Problem(("network",), message)


def _gpu_shortage(gpus: SeatGpus, seats: int, has: int, inventory: Inventory) -> str:
    if not gpus.count and not gpus.queue:
        return ""
    if not has:
        why = f" ({short(inventory.notices[-1])})" if inventory.notices else ""
        return f"this host has no GPU{why}; use `gpus: 0`: then every seat trains on CPUs"
    if gpus.count > has:
        message = f"a seat needs {counted(gpus.count, 'GPU')}, this host has {has}"
        return f"{message}; use `count: {has}` or less, or {_IN_TURNS}"
    needed = 0 if gpus.share else seats * gpus.count
    if needed <= has:
        return ""
    message = (
        f"{counted(seats, 'seat')} with {counted(gpus.count, 'GPU')} each need "
        f"{counted(needed, 'GPU')}, this host has {has}"
    )
    ways = f"{_IN_TURNS}, `gpus: {{count: {gpus.count}, share: true}}`"
    return f"{message}; use {ways}, or {counted(has // gpus.count, 'seat')} at most"


def _bytes_shortage(
    key: str, each: int | None, has: int | None, seats: int, runs: int
) -> Iterator[Problem]:
    """Yield a problem if the seats, and runs with the same limit, need more than the host has."""
    users, noun = seats + runs, {"disk": "free disk space"}.get(key, key)
    if each is None or has is None or each * users <= has:
        return
    ways = []
    if has // users >= _LEAST_BYTES:
        ways.append(f"`{key}: {exact(has // users // MIB * MIB, MEMORY)}` or less")
    if has // each > runs:
        ways.append(f"{counted(has // each - runs, 'seat')} at most")
    message = (
        f"{' and '.join(_users(seats, runs))} with {memory_for_people(each)} each need "
        f"{memory_for_people(each * users)}, this host has {memory_for_people(has)} of {noun}"
    )
    use = ", or ".join(ways) or "fewer and smaller seats"
    yield Problem(("seat", key), f"{message}; use {use}")


def _network_problems(config: ClassConfig, runs: int, used: Sequence[IPv4Network]) -> Iterator[str]:
    """Yield a message if the range is too small, and if the host uses some of the networks."""
    needed, networks = len(config.seats) + 1 + runs, _networks(config, runs)
    if len(networks) < needed:
        users = ", ".join(_users(len(config.seats), runs))
        message = f"{users} and the proxy need {needed} networks of /{SEAT_PREFIX}, and"
        fix = f"use a range of /{SEAT_PREFIX - (needed - 1).bit_length()}"
        yield f"{message} {config.network} has {len(networks)}; {fix}"
    taken = [each for each in dict.fromkeys(used) if any(map(each.overlaps, networks))]
    if taken:
        shown = ", ".join(map(str, taken[:_MOST_SHOWN])) + (", …" if taken[_MOST_SHOWN:] else "")
        message = f"the class takes its networks from {networks[0]} on, and this host uses {shown}"
        yield f"{message}; use another private range of this size"


def _cluster_problem(config: ClassConfig, cluster: Cluster, gpus_of_host: int) -> str:
    """Return why `lab run` would refuse the cluster config in every seat; "": it would not."""
    gpus, needed = config.seat.gpus, cluster.gpus_needed
    if not needed or not (gpus.count or gpus.queue):
        return ""
    name = short(str(config.cluster))
    for node, each in cluster.nodes.items():
        if any(isinstance(pin, str) for pin in each.pins):
            where = path_text(("nodes", node, "gpus"))
            message = f"{where} in {name} names a GPU by its UUID, and seats have different GPUs"
            return f"{message}; state a number of GPUs there"
    has = gpus_of_host if gpus.queue else gpus.count
    if needed <= has or not has:  # a host without any GPU has a shortage of its own
        return ""
    where = "the queue" if gpus.queue else "a seat"
    message = f"{name} needs {counted(needed, 'GPU')}, and {where} has {has}"
    ways = "name a smaller config, such as clusters/book.yaml for 1 GPU"
    more = "" if gpus.queue else f", or use `count: {needed}`"
    return f"{message}; {ways}{more}"
