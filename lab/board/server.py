"""The server of the board: a page, and its data as server-sent events.

It changes nothing, and answers only on 127.0.0.1, to browsers that have opened the address with the
token once. What is shown is read at most once a second, and only while a page is open; every viewer
gets the same bytes.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from lab.backends.state import state_directory
from lab.errors import LabError
from lab.log import LOG

ADDRESS: Final = "127.0.0.1"
PORT: Final = 8700
"""The port of a board, if no other one is given."""

EVERY_S: Final = 1.0
"""Seconds from one look at what is shown to the next."""

MOST_VIEWERS: Final = 200

_COOKIE: Final = "lab-board"
_HEARTBEAT_S: Final = 15.0
_FOLDER: Final = Path(__file__).parent
_FILES: Final = {
    "/": ("board.html", "text/html; charset=utf-8"),
    "/board.js": ("board.js", "text/javascript; charset=utf-8"),
    "/board.css": ("board.css", "text/css; charset=utf-8"),
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_TOKEN: Final = re.compile(rb"[\w-]{32}")
"""What `secrets.token_urlsafe(24)` returns."""

Source = Callable[[], bytes]
"""Returns what is shown now, as JSON on one line."""


def token() -> str:
    """Return the token of this user's boards; it is made once, so that a restart keeps it."""
    path = state_directory() / "board-token"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and _TOKEN.fullmatch(path.read_bytes()) is None:
        path.unlink()  # an empty one would open the page to every user of the host
    # A link exists with all of its content, or not at all; the first of several boards makes it.
    with NamedTemporaryFile(dir=path.parent) as made:  # only its owner can read it
        made.write(secrets.token_urlsafe(24).encode())
        made.flush()
        with suppress(FileExistsError):
            os.link(made.name, path)
    return path.read_text(encoding="ascii")


class Publisher:
    """Gives every viewer what is shown, when it has changed."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._viewers: set[_Events] = set()
        self._shown = b""
        self._looking = asyncio.Lock()

    async def add(self, viewer: _Events) -> None:
        """Give a new viewer what is shown now, and from now on what changes."""
        async with self._looking if not self._viewers else nullcontext():
            if not self._viewers:
                self._shown = await self._look()
            self._viewers.add(viewer)
        await viewer.send(self._shown)

    def remove(self, viewer: _Events) -> None:
        """Forget a viewer whose connection is closed."""
        self._viewers.discard(viewer)

    @property
    def is_full(self) -> bool:
        """Whether no other viewer has a place."""
        return len(self._viewers) >= MOST_VIEWERS

    async def run(self) -> None:
        """Look, and send what has changed; for ever."""
        quiet_s = 0.0
        while True:
            await asyncio.sleep(EVERY_S)
            quiet_s += EVERY_S
            if not self._viewers:
                continue
            async with self._looking:
                found = await self._look()
            if found != self._shown:
                self._shown, quiet_s = found, 0.0
                await self._send(found)
            elif quiet_s >= _HEARTBEAT_S:
                quiet_s = 0.0
                await self._send(b"")

    async def _look(self) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(None, self._source)

    async def _send(self, data: bytes) -> None:
        waiting = [viewer.send(data) for viewer in self._viewers]
        await asyncio.gather(*waiting)


class _Handler(RequestHandler):
    """Answers only to those who have the token, and only to the host's own name."""

    def initialize(self, wanted: str, publisher: Publisher) -> None:
        self.wanted, self.publisher = wanted, publisher

    def set_default_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.set_header(name, value)
        self.clear_header("Server")

    def prepare(self) -> None:
        # Another name that leads here belongs to another web page (DNS rebinding).
        if self.request.host_name not in {ADDRESS, "localhost"}:
            raise HTTPError(403)
        given = self.get_query_argument("token", "") or self.get_cookie(_COOKIE, "") or ""
        if not hmac.compare_digest(given.encode(), self.wanted.encode()):
            raise HTTPError(403)

    def write_error(self, status_code: int, **kwargs: Any) -> None:  # noqa: ANN401
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        texts = {403: "open the address that `lab attach --web` printed", 503: "too many viewers"}
        self.finish(texts.get(status_code, "not found") + "\n")

    def log_exception(self, *_: object) -> None:
        """Write nothing: requests without a token are no fault of this server."""


class _Page(_Handler):
    def get(self) -> None:
        if self.get_query_argument("token", ""):
            options: dict[str, Any] = {"httponly": True, "samesite": "Lax", "expires_days": 30}
            self.set_cookie(_COOKIE, self.wanted, **options)
            self.redirect("/")
            return
        name, kind = _FILES[self.request.path]
        self.set_header("Content-Type", kind)
        self.finish((_FOLDER / name).read_bytes())


class _Events(_Handler):
    _gone: asyncio.Event

    async def get(self) -> None:
        if self.publisher.is_full:
            raise HTTPError(503)
        self._gone = asyncio.Event()
        self.set_header("Content-Type", "text/event-stream")
        self.write(f"retry: 1000\nevent: clock\ndata: {time.time():.3f}\n\n".encode())
        await self.flush()  # the first look at a class takes seconds
        await self.publisher.add(self)
        try:
            await self._gone.wait()
        finally:
            self.publisher.remove(self)

    def on_connection_close(self) -> None:
        self._gone.set()

    async def send(self, data: bytes) -> None:
        """Send data; "": only a sign of life. A viewer that does not read it in time is left."""
        try:
            self.write(b"data: " + data + b"\n\n" if data else b":\n\n")
            await asyncio.wait_for(self.flush(), EVERY_S)
        except (StreamClosedError, TimeoutError):
            self._gone.set()
            self.request.connection.close()  # type: ignore[union-attr]


def application(wanted: str, publisher: Publisher) -> Application:
    """Return the board's application.

    Args:
        wanted: The token.
        publisher: What its viewers get.
    """
    # Its warnings are about requests, with the token that was given.
    logging.getLogger("tornado").setLevel(logging.ERROR)
    shared = {"wanted": wanted, "publisher": publisher}
    routes: list[Any] = [(path, _Page, shared) for path in _FILES]
    return Application(
        [*routes, ("/events", _Events, shared)],
        default_handler_class=_Missing,
        default_handler_args=shared,
    )


class _Missing(_Handler):
    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(404)


async def serve(source: Source, port: int) -> None:
    """Serve a board until it is cancelled; print its address, which has the token.

    Args:
        source: What is shown.
        port: The port on 127.0.0.1.

    Raises:
        LabError: Another program has the port.
    """
    publisher, wanted = Publisher(source), token()
    try:
        sockets = bind_sockets(port, ADDRESS)
    except OSError as error:
        raise LabError(
            f"port {port} on {ADDRESS} cannot be used: {error.strerror}", "choose another --port"
        ) from error
    server = HTTPServer(application(wanted, publisher))
    server.add_sockets(sockets)
    print(f"http://{ADDRESS}:{port}/?token={wanted}", flush=True)
    LOG.info("open this address in a browser here; Ctrl-C ends the board")
    try:
        await publisher.run()
    finally:
        server.stop()
        await server.close_all_connections()
