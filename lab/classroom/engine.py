"""The networks, volumes and containers of a class on the Docker engine."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, Final

from lab.backends.engine.client import Engine, NotFound, engine_errors
from lab.classroom import names
from lab.classroom.config import Tls
from lab.classroom.disks import TYPE, SeatDisk
from lab.classroom.planning import ClassPlan
from lab.errors import LabError

if TYPE_CHECKING:
    from docker.models.containers import Container

_PROXY: Final = "proxy"
"""The proxy's name in every network of the class."""

_SECRETS: Final = "/etc/lab-class"
_NO_MASQUERADE: Final = {"com.docker.network.bridge.enable_ip_masquerade": "false"}


def create_networks(engine: Engine, plan: ClassPlan) -> None:
    """Create the proxy's network, and one internal network for each seat.

    Raises:
        LabError: The engine refuses, for example because another network has the addresses.
    """
    # The ports of a container are published only on networks that are not internal. Without
    # masquerading, the proxy still reaches nothing beyond this host.
    _create_network(engine, plan, "", plan.proxy_network)
    for seat in plan.seats:
        _create_network(engine, plan, seat.name, seat.network)


def _create_network(engine: Engine, plan: ClassPlan, seat: str, network: IPv4Network) -> None:
    from docker.types import IPAMConfig, IPAMPool  # noqa: PLC0415  (takes 0.2 s)

    name = names.seat_object(plan.name, seat) if seat else names.prefix(plan.name)
    pool = IPAMPool(subnet=str(network), gateway=names.gateway(network))
    with engine_errors(f"creating the network {name}"):
        engine.client().networks.create(
            name,
            driver="bridge",
            internal=bool(seat),
            options={} if seat else _NO_MASQUERADE,
            ipam=IPAMConfig(pool_configs=[pool]),
            labels=_labels(plan.name, seat),
        )


def create_volumes(engine: Engine, plan: ClassPlan, disks: Mapping[str, SeatDisk]) -> None:
    """Create the volume of each seat, and one for the files of TLS.

    Raises:
        LabError: The engine refuses.
    """
    for seat in plan.seats:
        create_volume(engine, plan.name, seat.name, disks.get(seat.name))
    if plan.tls:
        # The proxy's user may not read the teacher's key, so that a copy is needed.
        with engine_errors("creating the volume of the certificate"):
            engine.client().volumes.create(names.tls_volume(plan.name), labels=_labels(plan.name))


def create_volume(engine: Engine, name: str, seat: str, disk: SeatDisk | None) -> None:
    """Create the volume of a seat.

    Args:
        engine: The engine.
        name: The class.
        seat: The seat.
        disk: Its disk, which the engine mounts; None: a directory without a limit.

    Raises:
        LabError: The engine refuses.
    """
    volume = names.seat_object(name, seat)
    with engine_errors(f"creating the volume {volume}"):
        engine.client().volumes.create(
            volume, driver_opts=_mount(disk) if disk else None, labels=_labels(name, seat)
        )


def _mount(disk: SeatDisk) -> dict[str, str]:
    return {"type": TYPE, "device": str(disk.device), "o": "nosuid,nodev"}


def remove_volume(engine: Engine, name: str, seat: str) -> None:
    """Remove the volume of a stopped seat.

    Raises:
        LabError: The engine refuses, for example because a container uses it.
    """
    volume = names.seat_object(name, seat)
    with suppress(NotFound), engine_errors(f"removing the volume {volume}"):
        engine.client().volumes.get(volume).remove()


def start_proxy(engine: Engine, plan: ClassPlan, image: str, token: str) -> None:
    """Start the proxy, connect it to every network, and start the relay beside it.

    Raises:
        LabError: The engine refuses, for example because the port is in use.
    """
    address = names.proxy_address(plan.proxy_network)
    hub = names.hub_url(plan.proxy_network)
    command = ["configurable-http-proxy", "--port", f"{names.PUBLIC_PORT}"]
    command += ["--api-ip", address, "--api-port", f"{names.PROXY_API_PORT}"]
    command += ["--error-target", f"{hub}/hub/error"]
    command += ["--host-routing"] if plan.domain else []
    volumes, secret = {}, {"CONFIGPROXY_AUTH_TOKEN": token}
    if plan.tls:
        command += ["--ssl-cert", f"{_SECRETS}/certificate.pem", "--ssl-key", f"{_SECRETS}/key.pem"]
        volumes[names.tls_volume(plan.name)] = {"bind": _SECRETS, "mode": "rw"}
    with engine_errors("starting the proxy"):
        api = engine.client().api
        prefix = names.prefix(plan.name)
        endpoint = api.create_endpoint_config(ipv4_address=address)
        proxy = create_container(
            engine,
            image,
            command,
            environment=secret,
            name=names.proxy_container(plan.name),
            labels=_labels(plan.name),
            ports={f"{names.PUBLIC_PORT}/tcp": (plan.address, plan.port)},
            network=prefix,
            networking_config={prefix: endpoint},
            volumes=volumes,
        )
        if plan.tls and not proxy.put_archive(_SECRETS, _tls_archive(plan.tls)):
            raise LabError("the engine refused the certificate", "start the class again")
        for seat in plan.seats:
            engine.client().networks.get(names.seat_object(plan.name, seat.name)).connect(
                proxy, aliases=[_PROXY], ipv4_address=names.proxy_address(seat.network)
            )
        proxy.start()
    ports = {"hub": (names.RELAY_PORT, names.HUB_PORT)}
    if plan.run_networks:
        ports["queue"] = (names.QUEUE_RELAY_PORT, names.QUEUE_PORT)
    for to, (port, on_host) in ports.items():
        target = f"http://{names.gateway(plan.proxy_network)}:{on_host}"
        relay = ["configurable-http-proxy", "--port", f"{port}", "--default-target", target]
        # Its API changes its only route; no other process may reach it.
        relay += ["--api-ip", "127.0.0.1", "--api-port", f"{port + 1}"]
        with engine_errors("starting a relay"):
            create_container(
                engine,
                image,
                relay,
                environment=secret,
                name=names.relay_container(plan.name, to),
                labels=_labels(plan.name),
                network_mode=f"container:{proxy.id}",
            ).start()


def _tls_archive(tls: Tls) -> bytes:
    """Return a tar file with the certificate and the key, which only the proxy's user can read."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, path in (("certificate.pem", tls.certificate), ("key.pem", tls.key)):
            content = path.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.uid, entry.gid, entry.mode, entry.size = 1000, 1000, 0o400, len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def create_container(
    engine: Engine,
    image: str,
    command: Sequence[str],
    **options: Any,  # noqa: ANN401  (docker-py's own)
) -> Container:
    """Create a container with few rights.

    Args:
        engine: The engine.
        image: The image.
        command: Its command.
        **options: More options of docker-py.
    """
    from docker.types import LogConfig  # noqa: PLC0415  (takes 0.2 s)

    return engine.client().containers.create(
        image,
        list(command),
        entrypoint=[],
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        pids_limit=64,
        tmpfs={"/tmp": ""},  # noqa: S108  (in the container)
        init=True,
        log_config=LogConfig(**names.LOG),
        **options,
    )


def contents(engine: Engine, name: str) -> dict[str, int]:
    """Return the number of containers, networks and volumes of a class.

    Raises:
        LabError: The engine refuses.
    """
    label = f"{names.CLASS}={name}"
    return {
        "container": len(seat_containers(engine, name)),
        **{kind: len(list(_list(engine, f"{kind}s", label))) for kind in ("network", "volume")},
    }


def remove_all(engine: Engine, name: str) -> None:
    """Remove the containers, the networks and the volumes of a class.

    Raises:
        LabError: The engine refuses; what could be removed is removed.
    """
    remove_containers(engine, name)
    label, refusals = f"{names.CLASS}={name}", []
    for kind in ("networks", "volumes"):
        for each in _list(engine, kind, label):
            try:
                with suppress(NotFound), engine_errors(f"removing {each.name} of the {kind}"):
                    each.remove()
            except LabError as error:
                refusals.append(error)
    if refusals:
        raise refusals[0]


def remove_containers(engine: Engine, name: str, seat: str = "") -> None:
    """Remove the containers of a class, or of one seat; networks and volumes stay.

    Raises:
        LabError: The engine refuses.
    """
    engine.for_each("removing the containers", seat_containers(engine, name, seat), _remove)


def seat_containers(engine: Engine, name: str, seat: str = "") -> list[Container]:
    """List the containers of a class, or of one seat.

    Raises:
        LabError: The engine refuses.
    """
    labels = [f"{each}={value}" for each, value in _labels(name, seat).items()]
    return engine.containers(*labels)


def _remove(container: Container) -> None:
    container.remove(force=True)


def _list(engine: Engine, kind: str, label: str) -> Iterator[Any]:
    with engine_errors(f"listing the {kind}"):
        yield from getattr(engine.client(), kind).list(filters={"label": label})


def _labels(name: str, seat: str = "") -> dict[str, str]:
    return {names.CLASS: name, **({names.SEAT: seat} if seat else {})}
