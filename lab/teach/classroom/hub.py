"""The settings of JupyterHub and its parts for one class.

JupyterHub signs students in, starts a container for each seat by DockerSpawner, and gives the proxy
its routes. Only the settings are lab's own.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from dockerspawner import DockerSpawner
from jupyterhub.auth import Authenticator
from tornado.web import HTTPError
from traitlets import Dict

from lab.backends.compose.host_block import block_container, host_addresses
from lab.backends.engine.client import Engine, engine_errors
from lab.base.variables import LAB_CLUSTER_CONFIG
from lab.protocol.runtimes import GPU_ORDER, NO_GPU
from lab.teach.classroom import names
from lab.teach.classroom.class_dir import ClassDir, StoredClass, Tokens
from lab.teach.classroom.config import TEACHER
from lab.teach.classroom.planning import ClassPlan, SeatPlan
from lab.teach.classroom.queue.host import queue_variables

_SERVICE: Final = "lab"
"""The name under which `lab` sends requests to JupyterHub."""

_STARTS_SEATS: Final = ["list:users", "read:users:activity", "servers"]
"""The scopes to list, start and stop seats, without access to their servers."""

_OWN_SEAT: Final = ["access:servers!user", "read:users!user", "servers!user", "users:activity!user"]
"""What a student needs: to open, start and stop their own seat, which asks who opens it and reports
its activity."""

_PASSED: Final = ("LAB_", "DOCKER_", "HOME", "XDG_")
"""The prefixes of variables that JupyterHub would not pass on; docker needs the last ones."""

_START_S: Final = 120
_MOST_USERS: Final = 256  # in one answer; a class has at most 200 seats
_PIDS: Final = 4096  # as for tasks; TensorFlow aborts with 512

MOST_FAILED: Final = 10
"""Failed attempts for a user from one network address in a minute; more are refused."""

_WINDOW_S: Final = 60.0
_MOST_BYTES: Final = 72


def configure(c: Any, folder: ClassDir) -> None:  # noqa: ANN401  (traitlets has no types for it)
    """Set the options of JupyterHub, in its configuration object."""
    stored, tokens = folder.stored(), folder.tokens()
    _hub(c, folder, tokens)
    _proxy(c, stored.plan, tokens.proxy)
    _seats(c, stored, folder)
    if stored.plan.run_networks:
        c.JupyterHub.services.append(_queue(folder))


def _hub(c: Any, folder: ClassDir, tokens: Tokens) -> None:  # noqa: ANN401
    c.JupyterHub.authenticator_class = SeatAuthenticator
    c.SeatAuthenticator.tokens = tokens.seats
    c.SeatAuthenticator.allowed_users = set(tokens.seats)
    c.JupyterHub.db_url = f"sqlite:///{folder.path / 'hub.sqlite'}"
    c.JupyterHub.cookie_secret_file = str(folder.path / "cookie_secret")
    # Requests do not wait for a seat to start or stop.
    c.JupyterHub.tornado_settings = {
        "slow_spawn_timeout": 0,
        "slow_stop_timeout": 0,
        "cookie_options": {"samesite": "Lax"},
    }
    c.JupyterHub.api_page_max_limit = _MOST_USERS
    # `lab class` itself ends the seats: a restarted JupyterHub finds them again.
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.default_url = _first_page
    c.Spawner.default_url = "/lab/tree/notebooks/00_tour.ipynb"
    c.Spawner.start_timeout = _START_S
    c.Spawner.http_timeout = _START_S
    c.JupyterHub.services = [{"name": _SERVICE, "api_token": tokens.service}]
    c.JupyterHub.load_roles = [
        {"name": "user", "scopes": _OWN_SEAT},
        {"name": _SERVICE, "services": [_SERVICE], "scopes": [*_STARTS_SEATS, "proxy"]},
    ]
    if TEACHER in tokens.seats:  # not an admin of JupyterHub: the teacher opens no seat
        scopes = ["admin-ui", *_STARTS_SEATS]
        c.JupyterHub.load_roles.append({"name": TEACHER, "users": [TEACHER], "scopes": scopes})
    c.JupyterHub.template_paths = [str(Path(__file__).with_name("templates"))]


def _proxy(c: Any, plan: ClassPlan, token: str) -> None:  # noqa: ANN401
    if plan.domain:  # JupyterHub and each seat have an origin of their own
        c.JupyterHub.subdomain_host = plan.url
        # Serve no page of JupyterHub under a seat's name: the seat's own pages could read it.
        c.JupyterHub.hub_routespec = f"{plan.domain}/"
        # A seat cannot set a cookie of this name for other hosts. Browsers require TLS for it.
        c.JupyterHub.cookie_host_prefix_enabled = plan.tls is not None
    # JupyterHub listens only in the proxy's network. Seats reach it through the relay.
    c.JupyterHub.hub_ip = names.gateway(plan.proxy_network)
    c.JupyterHub.hub_port = names.HUB_PORT
    scheme = "https" if plan.tls else "http"
    c.JupyterHub.bind_url = f"{scheme}://:{names.PUBLIC_PORT}"
    address = names.proxy_address(plan.proxy_network)
    c.ConfigurableHTTPProxy.should_start = False  # it runs in a container
    c.ConfigurableHTTPProxy.api_url = f"http://{address}:{names.PROXY_API_PORT}"
    c.ConfigurableHTTPProxy.auth_token = token


def _seats(c: Any, stored: StoredClass, folder: ClassDir) -> None:  # noqa: ANN401
    plan = stored.plan
    seats = {seat.name: seat for seat in plan.seats}
    # Read now, so that seats start even if a file of the class is damaged later.
    queue = {name: queue_variables(folder, name) for name in seats}

    def assign(spawner: Any) -> None:  # noqa: ANN401
        own = seats.get(spawner.user.name)
        if own is None:
            raise RuntimeError(f"{spawner.user.name} has no seat")
        if folder.resetting(own.name).exists():
            raise RuntimeError(f"{own.name} is being reset; try again later")
        spawner.network_name = names.seat_object(plan.name, own.name)
        spawner.cpu_limit = own.cpus
        spawner.mem_limit = own.memory_bytes
        gpus = GPU_ORDER if own.gpus else NO_GPU
        spawner.environment = {LAB_CLUSTER_CONFIG: stored.cluster, **gpus, **queue[own.name]}

    c.JupyterHub.spawner_class = SeatSpawner
    c.DockerSpawner.pre_spawn_hook = assign
    c.DockerSpawner.image = stored.image
    c.DockerSpawner.pull_policy = "never"
    c.DockerSpawner.name_template = names.seat_object(plan.name, "{raw_username}")
    c.DockerSpawner.volumes = {names.seat_object(plan.name, "{raw_username}"): names.MOUNT}
    c.DockerSpawner.notebook_dir = names.MOUNT
    c.DockerSpawner.port = names.SEAT_PORT
    c.DockerSpawner.remove = True
    c.DockerSpawner.use_internal_ip = True
    c.DockerSpawner.hub_connect_url = f"http://proxy:{names.RELAY_PORT}"
    c.DockerSpawner.cmd = ["python", "-P", "-m", "lab.teach.classroom.seat"]
    c.DockerSpawner.extra_create_kwargs = lambda spawner: {
        "user": names.USER,
        "hostname": spawner.user.name,
        "labels": {names.CLASS: plan.name, names.SEAT: spawner.user.name},
    }
    c.DockerSpawner.extra_host_config = lambda spawner: host_config(seats[spawner.user.name])


def _queue(folder: ClassDir) -> dict[str, Any]:
    """Return the service of the queue, which JupyterHub runs."""
    variables = {name: text for name, text in os.environ.items() if name.startswith(_PASSED)}
    # Without a `url`, the proxy has no route to it: only seats reach the queue, by their relay.
    return {
        "name": "queue",
        "command": [sys.executable, "-m", "lab.teach.classroom.queue.service", folder.name],
        "environment": variables,
        "cwd": str(folder.path),
    }


def _first_page(handler: Any) -> str:  # noqa: ANN401
    """The page after signing in: the teacher gets JupyterHub's admin page."""
    user = handler.current_user
    is_teacher = user is not None and user.name == TEACHER
    return str(handler.hub.base_url) + ("admin" if is_teacher else "spawn")


def host_config(seat: SeatPlan) -> dict[str, Any]:
    """Return the engine's options for a seat's container: few rights, and its own GPUs."""
    options: dict[str, Any] = {**names.FEW_RIGHTS, "pids_limit": _PIDS}
    if seat.memory_bytes is not None:
        options["memswap_limit"] = seat.memory_bytes  # no swap on top of the memory
    if seat.gpus:
        kind = {"Driver": "nvidia", "Capabilities": [["gpu", "compute", "utility"]]}
        options["device_requests"] = [{**kind, "DeviceIDs": list(seat.gpus)}]
    return options


class SeatAuthenticator(Authenticator):  # type: ignore[misc]
    """Compares passwords with those of the class."""

    tokens = Dict(help="The password of each user.").tag(config=True)

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  (traitlets' own)
        super().__init__(**options)
        self._window = 0.0
        self._failed: Counter[tuple[str, str]] = Counter()  # the attempts of this minute

    async def authenticate(self, handler: Any, data: Mapping[str, str]) -> str | None:  # noqa: ANN401
        """Return the user's name, or None for a wrong name or password.

        Raises:
            HTTPError: The page of another host sends the form, the password is too long for any
                user, or too many attempts have failed.
        """
        request = handler.request
        origin = request.headers.get("Origin")
        # A seat's page could sign its visitor in as that seat's student.
        if origin and urlsplit(origin).netloc != request.host:
            raise HTTPError(403, "sign in on the class's own page")
        user, password = data.get("username", ""), data.get("password", "").encode()
        if len(password) > _MOST_BYTES:
            raise HTTPError(400, f"a password has at most {_MOST_BYTES} bytes")
        token = self.tokens.get(user)
        if token is None:
            return None
        if (now := time.monotonic()) - self._window > _WINDOW_S:
            self._window = now
            self._failed.clear()
        attempt = (user, request.remote_ip)
        # By address, too, so that a student cannot lock out others elsewhere.
        if self._failed[attempt] >= MOST_FAILED:
            raise HTTPError(429, "too many failed attempts: wait a minute, then sign in again")
        if hmac.compare_digest(password, token.encode()):
            return user
        self._failed[attempt] += 1
        return None


AT_ONCE: Final = 8
"""Requests to the engine at a time; the stop of a seat can take 10 s."""


class SeatSpawner(DockerSpawner):  # type: ignore[misc]
    """Starts a seat's container and blocks the host; the container waits for that."""

    _executor = ThreadPoolExecutor(AT_ONCE)  # by default one thread for all seats

    async def start_object(self) -> None:
        """Start the container, and block the host.

        Raises:
            LabError: The kernel or the engine refuses; the seat does not start.
        """
        await super().start_object()
        await asyncio.to_thread(self._block_host)

    def _block_host(self) -> None:
        engine = Engine()
        seat = self.user.name
        with engine_errors(f"blocking the host from {seat}"):
            container = engine.client().containers.get(self.container_id)
            (network,) = container.attrs["NetworkSettings"]["Networks"]
            # Since Engine 28, a container on an internal network has no gateway.
            hosts = list(host_addresses(engine.client().networks.get(network).attrs))
        name = container.labels[names.CLASS]
        # JupyterHub, on this host, asks each seat whether its server is ready.
        labels = {names.CLASS: name}
        block_container(
            engine, names.prefix(name), hosts, container, seat, replies=True, labels=labels
        )
