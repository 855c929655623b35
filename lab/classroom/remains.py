"""What is left of a class: of its files or, if they are damaged, on the engine and the host."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any, Final

from lab.backends.engine.client import Engine, engine_errors
from lab.classroom import names
from lab.classroom.containers import KINDS, labelled
from lab.classroom.disks import TYPE
from lab.classroom.hub_api import HubApi, hub_api
from lab.classroom.image import DIGEST
from lab.classroom.planning import ClassPlan, SeatPlan
from lab.classroom.state import ClassDir, StoredClass, Tokens
from lab.log import LOG

_NOWHERE: Final = IPv4Network("0.0.0.0/28")
"""In place of a network that is gone; no address in it answers."""


def read_class(folder: ClassDir) -> tuple[StoredClass, HubApi | None]:
    """Read a class, also if its files are damaged or of a newer version.

    Returns:
        The class, or what is left of it; and its JupyterHub, or None without its token.

    Raises:
        LabError: The class cannot be read, and the engine refuses.
    """
    stored = folder.readable(StoredClass)
    if stored is None:
        LOG.warning("going on with what the engine has of the class, without its GPUs and limits")
        stored = remains(folder)
    tokens = folder.readable(Tokens)
    return stored, hub_api(stored.plan, tokens.service) if tokens else None


def remains(folder: ClassDir) -> StoredClass:
    """Return what the engine and the host still have of a class whose file cannot be read.

    Its seats, networks and disks are known; its GPUs, limits and lessons are not.

    Raises:
        LabError: The engine refuses.
    """
    engine, disks = Engine(), folder.disks.glob(f"*.{TYPE}")
    sizes = {path.stem: path.stat().st_size for path in disks}
    containers, networks, volumes = (labelled(engine, kind, folder.name) for kind in KINDS)
    ranges = {_seat_of(each): _range_of(each) for each in networks}
    seats = sorted({*ranges, *map(_seat_of, volumes)} - {""})
    images = [str(each.attrs["Config"]["Image"]) for each in containers]
    if not images:  # any image of a class can read a volume
        with engine_errors("looking for the image of the class"):
            found = engine.client().images.list(filters={"label": DIGEST})
        images = [str(each.id) for each in found]
    plan = ClassPlan(
        name=folder.name,
        seats=tuple(
            SeatPlan(seat, (), ranges.get(seat, _NOWHERE), None, None, sizes.get(seat))
            for seat in seats
        ),
        proxy_network=ranges.get("", _NOWHERE),
        disk_enforced=bool(sizes),
    )
    return StoredClass(plan, images[0] if images else "", "", ())


def _seat_of(thing: Any) -> str:  # noqa: ANN401  (a network or a volume of docker-py)
    labels = thing.attrs.get("Labels") or {}
    return str(labels.get(names.SEAT, ""))


def _range_of(network: Any) -> IPv4Network:  # noqa: ANN401
    (pool,) = network.attrs["IPAM"]["Config"]
    return IPv4Network(pool["Subnet"])
