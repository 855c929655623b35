"""The networks, volumes and containers of a class on the Docker engine.

Labels name the class of each of them, and the seat if it belongs to one. So the engine alone knows
what belongs to a class.
"""

from __future__ import annotations

import io
import socket
import tarfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from lab.backends.engine.client import Engine, engine_errors
from lab.backends.run_volume import NotFound
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.base.text import short
from lab.teach.classroom import names
from lab.teach.classroom.class_dir import ClassDir, StoredClass
from lab.teach.classroom.disks import TYPE, SeatDisk
from lab.teach.classroom.student_work import add_files

if TYPE_CHECKING:
    from docker.models.containers import Container

_PROXY: Final = "proxy"
"""The proxy's name in every network of the class."""

_SECRETS: Final = "/etc/lab-class"
_NO_MASQUERADE: Final = {"com.docker.network.bridge.enable_ip_masquerade": "false"}
_PROXY_S: Final = 60.0
_POLL_S: Final = 0.1


class Containers:
    """A container, a network and a volume for each seat, and the proxy.

    JupyterHub starts and stops the seats. Every method raises a `LabError` if the engine or the
    host refuses.
    """

    def __init__(self, stored: StoredClass) -> None:
        """Use the engine that the environment variables name."""
        self._plan, self._image = stored.plan, stored.image
        self._folder = ClassDir(self._plan.name)
        self._engine = Engine()
        self._disks = {
            seat.name: SeatDisk(self._folder.path / "disks", seat.name, seat.disk_bytes)
            for seat in self._plan.seats
            if self._plan.disk_enforced and seat.disk_bytes is not None
        }

    def create_networks(self) -> None:
        """Create the proxy's network, and one internal network for each seat."""
        # The ports of a container are published only on networks that are not internal. Without
        # masquerading, the proxy still reaches nothing beyond this host.
        self._create_network("", self._plan.proxy_network)
        for seat in self._plan.seats:
            self._create_network(seat.name, seat.network)

    def _create_network(self, seat: str, network: IPv4Network) -> None:
        from docker.types import IPAMConfig, IPAMPool  # noqa: PLC0415  (takes 0.2 s)

        name = self._of(seat) if seat else names.prefix(self._plan.name)
        pool = IPAMPool(subnet=str(network), gateway=names.gateway(network))
        with engine_errors(f"creating the network {name}"):
            self._engine.client().networks.create(
                name,
                driver="bridge",
                internal=bool(seat),
                options={} if seat else _NO_MASQUERADE,
                ipam=IPAMConfig(pool_configs=[pool]),
                labels=_labels(self._plan.name, seat),
            )

    def create_storage(self) -> None:
        """Create the volumes and the disks that are missing, and attach all disks."""
        for seat in self._plan.seats:
            self._create_volume(self._of(seat.name), seat.name)
        if self._plan.tls:
            # The proxy's user may not read the teacher's key, so it gets a copy.
            self._create_volume(names.proxy_object(self._plan.name, "tls"))
        for disk in self._disks.values():
            disk.attach()

    def _create_volume(self, name: str, seat: str = "") -> None:
        """Create a volume of the class, or of a seat, unless it exists."""
        disk = self._disks.get(seat)
        options = {"type": TYPE, "device": str(disk.device), "o": "nosuid,nodev"} if disk else None
        with engine_errors(f"creating the volume {name}"):
            self._engine.client().volumes.create(
                name, driver_opts=options, labels=_labels(self._plan.name, seat)
            )

    def replace_storage(self, seat: str) -> None:
        """Replace the volume of a stopped seat, and its disk."""
        with suppress(NotFound), engine_errors(f"removing the volume of {seat}"):
            self._engine.client().volumes.get(self._of(seat)).remove()
        self._create_volume(self._of(seat), seat)
        if disk := self._disks.get(seat):  # no container uses it, or the engine would have refused
            disk.remove()
            disk.attach()

    def start_proxy(self) -> None:
        """Start the proxy, connected to every network, and the relays beside it.

        Remove what is left of an earlier proxy first.
        """
        plan = self._plan
        secret = {"CONFIGPROXY_AUTH_TOKEN": self._folder.tokens().proxy}
        self._remove_all(self._proxies())
        with engine_errors("starting the proxy"):
            proxy = self._create_proxy(secret)
            for seat in plan.seats:
                network = self._engine.client().networks.get(self._of(seat.name))
                address = names.proxy_address(seat.network)
                network.connect(proxy, aliases=[_PROXY], ipv4_address=address)
            proxy.start()
        for to, (port, on_host) in self._relays().items():
            target = f"http://{names.gateway(plan.proxy_network)}:{on_host}"
            relay = ["configurable-http-proxy", "--port", f"{port}", "--default-target", target]
            # A seat must not keep a connection: it would break with the next relay.
            relay += ["--keep-alive-timeout", "1"]
            # Its API could change its only route, so no other process may reach it.
            relay += ["--api-ip", "127.0.0.1", "--api-port", f"{port + 1}"]
            with engine_errors("starting a relay"):
                self._create(
                    relay,
                    environment=secret,
                    name=names.proxy_object(plan.name, f"relay-{to}"),
                    network_mode=f"container:{proxy.id}",
                ).start()

    def wait_for_proxy(self) -> None:
        """Return when the proxy and its relays accept connections.

        Raises:
            LabError: One of them has ended, or is not ready in time; with its last line.
        """
        address = names.proxy_address(self._plan.proxy_network)
        ports = [names.PUBLIC_PORT, names.PROXY_API_PORT]
        ports += [port for port, _ in self._relays().values()]
        until = time.monotonic() + _PROXY_S
        while not all(_accepts(address, port) for port in ports):
            if not self.proxy_runs() or time.monotonic() > until:
                raise LabError(f"the proxy is not ready: {self._last_line_of_proxies()}")
            time.sleep(_POLL_S)

    def _last_line_of_proxies(self) -> str:
        """Return the last line of the first proxy or relay that has ended."""
        proxies = sorted(self._proxies(), key=lambda proxy: (proxy.status == "running", proxy.name))
        with engine_errors("reading the log of the proxy"):
            line = proxies[0].logs(tail=1) if proxies else b"it was removed"
        return short(line.strip() or b"it printed nothing")

    def _relays(self) -> dict[str, tuple[int, int]]:
        """Return the port of each relay, and the host's port to which it forwards."""
        ports = {"hub": (names.RELAY_PORT, names.HUB_PORT)}
        if self._plan.run_networks:
            ports["queue"] = (names.QUEUE_RELAY_PORT, names.QUEUE_PORT)
        return ports

    def proxy_runs(self) -> bool:
        """Return whether the proxy and all its relays run."""
        running = [container for container in self._proxies() if container.status == "running"]
        return len(running) == 1 + len(self._relays())

    def _proxies(self) -> list[Container]:
        """Return the existing containers of the proxy and its relays."""
        # A relay shares the network of its proxy and is useless without it.
        return [container for container in self._containers() if names.SEAT not in container.labels]

    def _create_proxy(self, secret: dict[str, str]) -> Container:
        """Create the proxy's container in its own network."""
        plan = self._plan
        address, network = names.proxy_address(plan.proxy_network), names.prefix(plan.name)
        command = ["configurable-http-proxy", "--port", f"{names.PUBLIC_PORT}"]
        command += ["--api-ip", address, "--api-port", f"{names.PROXY_API_PORT}"]
        command += ["--error-target", f"{names.hub_url(plan.proxy_network)}/hub/error"]
        command += ["--host-routing"] if plan.domain else []
        volumes = {}
        if plan.tls:
            command += ["--ssl-cert", f"{_SECRETS}/certificate.pem"]
            command += ["--ssl-key", f"{_SECRETS}/key.pem"]
            volumes[names.proxy_object(plan.name, "tls")] = {"bind": _SECRETS, "mode": "rw"}
        endpoint = self._engine.client().api.create_endpoint_config(ipv4_address=address)
        proxy = self._create(
            command,
            environment=secret,
            name=names.proxy_object(plan.name, "proxy"),
            ports={f"{names.PUBLIC_PORT}/tcp": (plan.address, plan.port)},
            network=network,
            networking_config={network: endpoint},
            volumes=volumes,
        )
        if plan.tls and not proxy.put_archive(_SECRETS, _tls_archive(plan.tls)):
            raise LabError("the engine refused the certificate", "start the class again")
        return proxy

    def _create(self, command: Sequence[str], seat: str = "", **options: Any) -> Container:  # noqa: ANN401
        """Create a container of the class, or of a seat, with few rights."""
        return self._engine.client().containers.create(
            self._image,
            list(command),
            entrypoint=[],
            labels=_labels(self._plan.name, seat),
            pids_limit=64,
            **names.FEW_RIGHTS,
            **options,
        )

    def is_stopped(self, seat: str) -> bool:
        """Return whether the seat has no container that was started."""
        return all(container.status == "created" for container in self._containers(seat))

    def stop(self, seat: str = "") -> None:
        """Remove the containers of a seat or of the class."""
        self._remove_all(self._containers(seat))

    def _remove_all(self, containers: Sequence[Container]) -> None:
        doing = "removing the containers"
        self._engine.for_each(doing, containers, lambda container: container.remove(force=True))

    def save(self, seat: str, archive: zipfile.ZipFile, folder: str) -> None:
        """Add the files of a seat's volume to a directory of an archive; report what is left out.

        Raises:
            OSError: The archive cannot be written.
        """
        if not self.has_storage(seat):
            return
        doing = f"reading the work of {seat}"
        volumes = {self._of(seat): {"bind": names.MOUNT}}
        with engine_errors(doing):  # a container that is never started
            reader = self._create(["true"], seat, volumes=volumes, network_mode="none")
        try:
            with engine_errors(doing):
                pieces, _ = reader.get_archive(names.MOUNT)
                stream: Any = SimpleNamespace(read=lambda _: next(pieces, b""))
                with tarfile.open(fileobj=stream, mode="r|") as files:
                    left_out = add_files(files, archive, folder)
        except tarfile.TarError as error:
            raise LabError(f"{doing}: {error}", "run the command again") from error
        finally:
            with engine_errors("removing a container"):
                reader.remove(force=True)
        if left_out:
            kinds = "links, special files, or over the size limit"
            LOG.warning(f"{seat}: not in the archive: {left_out:,} ({kinds})")

    def has_storage(self, seat: str) -> bool:
        """Attach the disk of a seat; return whether the seat has a volume and, if needed, a disk.

        They are missing if their creation failed. The engine would add a volume without a limit.
        """
        disk = self._disks.get(seat)
        if disk is not None and not disk.image.exists():
            return False
        try:
            with engine_errors(f"looking for the volume of {seat}"):
                self._engine.client().volumes.get(self._of(seat))
        except NotFound:
            return False
        if disk is not None:
            disk.attach()
        return True

    def remove(self) -> None:
        """Remove the containers, the networks, the volumes and the disks.

        Remove as much as possible, even if the engine refuses a part.
        """
        self.stop()
        with ExitStack() as removals:  # it makes every call, even if one raises
            for kind in ("volumes", "networks"):
                for part in self._listed(kind):
                    removals.callback(_remove, part, f"removing {part.name} of the {kind}")
        for disk in self._disks.values():
            disk.remove()

    def _listed(self, kind: str) -> list[Any]:
        """List the networks or the volumes of the class."""
        with engine_errors(f"listing the {kind}"):
            label = f"{names.CLASS}={self._plan.name}"
            return list(getattr(self._engine.client(), kind).list(filters={"label": label}))

    def _containers(self, seat: str = "") -> list[Container]:
        labels = (f"{key}={text}" for key, text in _labels(self._plan.name, seat).items())
        return self._engine.containers(*labels)

    def _of(self, seat: str) -> str:
        return names.seat_object(self._plan.name, seat)


def _remove(part: Any, doing: str) -> None:  # noqa: ANN401  (a network or a volume)
    with suppress(NotFound), engine_errors(doing):
        part.remove()


def _labels(name: str, seat: str = "") -> dict[str, str]:
    return {names.CLASS: name, **({names.SEAT: seat} if seat else {})}


def _accepts(address: str, port: int) -> bool:
    """Whether something listens on a port of a container."""
    with suppress(OSError):
        socket.create_connection((address, port), timeout=1.0).close()
        return True
    return False


def _tls_archive(tls: Mapping[str, Path]) -> bytes:
    """Return a tar file with the certificate and the key, which only the proxy's user can read."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, path in tls.items():
            content = path.read_bytes()
            entry = tarfile.TarInfo(f"{name}.pem")
            entry.uid, entry.gid, entry.mode, entry.size = 1000, 1000, 0o400, len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
