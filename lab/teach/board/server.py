"""The server of the board: a page, and its data as server-sent events.

It changes nothing, and answers only on 127.0.0.1, to browsers that have opened the address with the
token once. What is shown is read at most once a second, and only while a page is open; all
viewers get the same bytes.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, Protocol

import msgspec
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from lab.backends.state import state_directory
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.base.text import short

ADDRESS: Final = "127.0.0.1"
PORT: Final = 8700
"""The default port of a board."""

EVERY_S: Final = 1.0
"""Seconds between two reads of what is shown."""

_COOKIE: Final = "lab-board"
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


class Feed(Protocol):
    """Knows what a run or a class does now."""

    def now(self) -> msgspec.Struct | None:
        """Return it as it is now; None if there is no run."""


def encoded(name: str, feed: Feed) -> bytes:
    """Return what a board shows as JSON on one line, or why it cannot be read now.

    Args:
        name: What the page shows: `run` or `class`.
        feed: The run or the class.
    """
    shown, problem = None, ""
    try:
        shown = feed.now()
    except (LabError, OSError) as error:
        problem = short(str(error))
    return msgspec.json.encode({name: shown, "problem": problem})


def token() -> str:
    """Return the token of this user's boards; it survives a restart."""
    path = state_directory() / "board-token"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and _TOKEN.fullmatch(path.read_bytes()) is None:
        path.unlink()  # an empty one would open the page to every user of the host
    # A link appears with its whole content or not at all; the first of several boards wins.
    with NamedTemporaryFile(dir=path.parent) as file:  # only its owner can read it
        file.write(secrets.token_urlsafe(24).encode())
        file.flush()
        with suppress(FileExistsError):
            os.link(file.name, path)
    return path.read_text(encoding="ascii")


class Shown:
    """What is shown: read at most once in `EVERY_S`, however many viewers ask."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._data, self._read_s = b"", -math.inf
        self._reading = asyncio.Lock()

    async def now(self) -> bytes:
        """Return it as it was at most `EVERY_S` ago."""
        async with self._reading:
            if time.monotonic() - self._read_s >= EVERY_S:
                loop = asyncio.get_running_loop()
                self._data = await loop.run_in_executor(None, self._source)
                self._read_s = time.monotonic()
        return self._data


class _Handler(RequestHandler):
    """Answers only requests that have the token and name this host."""

    def initialize(self, wanted: str, shown: Shown) -> None:
        self.wanted, self.shown = wanted, shown

    def set_default_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.set_header(name, value)
        self.clear_header("Server")

    def prepare(self) -> None:
        # Another name that leads here belongs to another web page (DNS rebinding).
        if self.request.host_name not in {ADDRESS, "localhost"}:
            raise HTTPError(403)
        presented = self.get_query_argument("token", "") or self.get_cookie(_COOKIE, "") or ""
        if not hmac.compare_digest(presented.encode(), self.wanted.encode()):
            raise HTTPError(403)

    def write_error(self, status_code: int, **kwargs: Any) -> None:  # noqa: ANN401
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        text = "open the address that `lab attach --web` printed"
        self.finish((text if status_code == HTTPStatus.FORBIDDEN else "not found") + "\n")

    def log_exception(self, *_: object) -> None:
        """Log nothing: a request without a token is not a fault of this server."""


class _Page(_Handler):
    def get(self) -> None:
        if self.get_query_argument("token", ""):
            self.set_cookie(_COOKIE, self.wanted, httponly=True, samesite="Lax", expires_days=30)
            self.redirect("/")
            return
        if self.request.path not in _FILES:
            raise HTTPError(404)
        name, kind = _FILES[self.request.path]
        self.set_header("Content-Type", kind)
        self.finish(Path(__file__).with_name(name).read_bytes())


class _Events(_Handler):
    async def get(self) -> None:
        """Send what is shown whenever it has changed, until the page is closed."""
        self.set_header("Content-Type", "text/event-stream")
        self.write(f"retry: 1000\nevent: clock\ndata: {time.time():.3f}\n\n".encode())
        sent = b""
        with suppress(StreamClosedError):
            while True:
                await self.flush()  # the first look at a class takes seconds
                data = await self.shown.now()
                # A comment detects whether the page is still open.
                self.write(b":\n\n" if data == sent else b"data: " + data + b"\n\n")
                sent = data
                await self.flush()
                await asyncio.sleep(EVERY_S)


def application(wanted: str, shown: Shown) -> Application:
    """Return the board's application.

    Args:
        wanted: The token.
        shown: What its viewers get.
    """
    # Its warnings would log the token of a request.
    logging.getLogger("tornado").setLevel(logging.ERROR)
    shared = {"wanted": wanted, "shown": shown}
    return Application([("/events", _Events, shared), ("/.*", _Page, shared)])


async def serve(source: Source, port: int) -> None:
    """Serve a board until it is cancelled; print its address, which has the token.

    Args:
        source: What is shown.
        port: The port on 127.0.0.1.

    Raises:
        LabError: Another program has the port.
    """
    wanted = token()
    try:
        sockets = bind_sockets(port, ADDRESS)
    except OSError as error:
        raise LabError(
            f"port {port} on {ADDRESS} cannot be used: {error.strerror}", "choose another --port"
        ) from error
    server = HTTPServer(application(wanted, Shown(source)))
    server.add_sockets(sockets)
    print(f"http://{ADDRESS}:{port}/?token={wanted}", flush=True)
    LOG.info("open this address in a browser on this host; stop the board with Ctrl-C")
    try:
        await asyncio.Event().wait()
    finally:
        server.stop()
        await server.close_all_connections()
