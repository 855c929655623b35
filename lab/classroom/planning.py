"""Plans a class: what each seat gets of a host, or all shortages of the host at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import msgspec

from lab.classroom.config import ClassConfig, Times, Tls
from lab.classroom.shortages import HostFacts, class_networks, shortages, usable_gpus, users_of
from lab.config import Cluster
from lab.config.diagnostics import texts
from lab.errors import ConfigError
from lab.formatting import about, counted
from lab.gpu import Gpu, Inventory
from lab.placement.gpu_selection import select_gpus
from lab.placement.gpu_usage import held_in_use
from lab.text import short
from lab.units import memory_for_people


@dataclass(frozen=True, slots=True)
class SeatPlan:
    """What one seat gets.

    Attributes:
        name: Its name.
        gpus: The UUIDs of its GPUs or MIG devices.
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
        domain: JupyterHub's DNS name, with a name for each seat below it; "" if browsers reach all
            by one name, so that pages of seats can act as each other and as JupyterHub's own.
        tls: The files for HTTPS, or None.
        times: When the class takes place.
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
    tls: Tls | None = None
    times: Times = field(default_factory=Times)
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
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        del shown["tls"], shown["times"]
        found: dict[str, Any] = msgspec.to_builtins(shown, enc_hook=str)
        return found


def plan_class(config: ClassConfig, host: HostFacts, cluster: Cluster) -> ClassPlan:
    """Plan a class on a host, with the cluster config that each seat gets.

    Raises:
        ConfigError: The host has too little; the error lists all shortages.
    """
    if problems := list(shortages(config, host, cluster)):
        raise ConfigError(texts(problems))
    names, seat = config.seats, config.seat
    devices = usable_gpus(seat.gpus, host.inventory)
    gpus = _gpus_by_seat(config, devices, host.inventory)
    proxy, *networks = class_networks(config, devices)
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
        tls=config.tls and config.tls.below(Path.cwd()),  # JupyterHub has another directory
        times=config.times,
        disk_enforced=seat.disk is not None and host.disk_unenforced == "",
    )
    return replace(plan, notices=tuple(_notices(plan, config, host, cluster)))


# Allocation.


def _gpus_by_seat(
    config: ClassConfig, devices: Sequence[Gpu], inventory: Inventory
) -> dict[str, tuple[str, ...]]:
    """Return the UUIDs of each seat's GPUs. There must be enough."""
    count, names = config.seat.gpus.count, config.seats
    if not count:
        return dict.fromkeys(names, ())
    if not config.seat.gpus.share and not config.seat.gpus.mig:
        chosen = select_gpus(dict.fromkeys(names, count), devices, inventory.pairs)
        return {name: _ids(chosen[name].gpus) for name in names}
    order = devices
    if not config.seat.gpus.mig:
        # Neighbours in this order are close to each other.
        order = select_gpus({"": len(devices)}, devices, inventory.pairs)[""].gpus
    # In turn, so that the numbers of seats of two GPUs differ by at most one.
    return {
        name: _ids(order[(seat * count + place) % len(order)] for place in range(count))
        for seat, name in enumerate(names)
    }


def _ids(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    return tuple(gpu.device_id for gpu in gpus)


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
    if config.cpu_runs:
        how = "--backend class --gpus none" if cluster.gpus_needed else "--backend class"
        which = f"{counted(config.cpu_runs, 'run')} without GPUs"
        yield f"{which} can have containers at the same time: `lab run {how}`"
    seat, cpus = config.seat, host.inventory.cpus
    seats, runs = len(plan.seats), len(plan.run_networks)
    if seat.cpus is not None and cpus is not None and seat.cpus * (seats + runs) > cpus:
        yield (
            f"{' and '.join(users_of(seats, runs))} may use {seat.cpus * (seats + runs):g} "
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
        turn = about(config.times.slice.total_seconds())
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
    elif gpus.queue:
        yield f"{name} asks for no GPU, so its runs do not use those of the queue"
    elif gpus.count > needed:
        yield f"a seat has {counted(gpus.count, 'GPU')}, and {name} uses {needed or 'none'}"
