"""The service of the queue: `python -m lab.teach.classroom.queue.service CLASS`.

JupyterHub starts it, and restarts it when it ends. Its argument is the name of the class.
`lab.teach.classroom.protocol` describes its messages. Everything from a seat is untrusted: only
its token decides whose environment is meant, and each token has a limited number of requests. The
token is checked before the body is read, whose size and time are limited.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from tornado.httpserver import HTTPServer
from tornado.web import Application, HTTPError, RequestHandler, stream_request_body

from lab.backends.engine.client import Engine
from lab.backends.state import locked
from lab.base.errors import InputError, LabError
from lab.base.parent_death import set_pdeathsig
from lab.teach.classroom import names
from lab.teach.classroom.class_dir import ClassDir
from lab.teach.classroom.protocol import ERRORS, Order
from lab.teach.classroom.queue.host import (
    TEACHER,
    Host,
    ledger_file,
    queue_token,
    read_ledger,
    remove_environments,
)
from lab.teach.classroom.queue.ledger import Ledger
from lab.teach.classroom.queue.turns import Turns

MAX_REQUESTS: Final = 8
"""The maximum number of requests of one seat at the same time: no request waits for a change."""

MAX_BODY_BYTES: Final = 1 << 16

LIMITS: Final[Mapping[str, Any]] = {
    "max_body_size": MAX_BODY_BYTES,
    "max_header_size": 1 << 14,
    "body_timeout": 10.0,
    "idle_connection_timeout": 60.0,
}
"""The limits of the HTTP server, in bytes and seconds."""

_STOP_S: Final = 8.0
"""Seconds for the steps that are under way at the end; JupyterHub waits 10 s."""


def application(turns: Turns, tokens: Mapping[str, str]) -> Application:
    """Return the application.

    Args:
        turns: The environments of the seats.
        tokens: The seat of each token, or `TEACHER`.
    """
    # Without warnings about requests: a seat could fill the log with them.
    logging.getLogger("tornado").setLevel(logging.ERROR)
    return Application([("/.*", _Handler, {"turns": turns, "tokens": tokens, "active": set()})])


@stream_request_body
class _Handler(RequestHandler):
    """Finds the seat of each request, collects the body, and answers errors as JSON."""

    def initialize(self, turns: Turns, tokens: Mapping[str, str], active: set[_Handler]) -> None:
        self._turns, self._active = turns, active
        kind, _, token = self.request.headers.get("Authorization", "").partition(" ")
        self.seat = tokens.get(token, "") if kind.lower() == "token" else ""
        self._body = bytearray()

    def prepare(self) -> None:
        """Check everything that needs no body: the token and the number of requests."""
        method = self.request.method
        if not self.seat:
            raise HTTPError(403, reason="this token has no access to the queue")
        others = [handler.request.method for handler in self._active if handler.seat == self.seat]
        # An order takes a thread, and a seat gets only one.
        if len(others) >= MAX_REQUESTS or (method == "PUT" and method in others):
            raise HTTPError(429, reason="too many requests at the same time")
        if self.request.path != "/environment":
            raise HTTPError(404, reason="the queue has no such address")
        is_for_teacher = method == "DELETE" and "seat" in self.request.query_arguments
        if (self.seat == TEACHER) is not is_for_teacher:
            raise HTTPError(403, reason="this request is not for this token")
        if "Transfer-Encoding" in self.request.headers:
            raise HTTPError(411, reason="the size of the body is missing")
        self._active.add(self)

    def data_received(self, chunk: bytes) -> None:
        self._body += chunk  # the server limits its size and its time

    def on_connection_close(self) -> None:
        """End a request whose body breaks off; tornado does not call `on_finish` then."""
        super().on_connection_close()
        if len(self._body) < int(self.request.headers.get("Content-Length", 0)):
            self._active.discard(self)

    def on_finish(self) -> None:
        self._active.discard(self)

    def get(self) -> None:
        self._answer(self._turns.status(self._turns.find(self.seat)))

    async def put(self) -> None:
        entry = await self._turns.order(self._order(), self.seat)
        self._answer(self._turns.status(entry))

    def delete(self) -> None:
        if self.seat == TEACHER:
            self._answer(self._turns.end(self.get_query_argument("seat")))
        else:
            self._answer(self._turns.give_back(self.seat, self.get_query_argument("id")))

    def compute_etag(self) -> None:
        """The answers change, so they have no ETag."""

    def _order(self) -> Order:
        """Decode the body.

        Raises:
            InputError: The body is not an order.
        """
        try:
            return msgspec.json.decode(bytes(self._body), type=Order)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(
                f"not a message of the queue: {error}", "update lab in the seat"
            ) from error

    def _answer(self, value: object) -> None:
        """Answer with JSON."""
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.finish(msgspec.json.encode(value))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:  # noqa: ANN401  (tornado's own)
        """Log errors that the seat did not cause."""
        if not isinstance(value, LabError):
            super().log_exception(typ, value, tb)

    def write_error(self, status_code: int, **kwargs: Any) -> None:  # noqa: ANN401  (tornado's own)
        """Answer an error as JSON."""
        error = kwargs.get("exc_info", (None, None))[1]
        if isinstance(error, LabError):
            codes = (code for code, kind in ERRORS.items() if isinstance(error, kind))
            self.set_status(next(codes, status_code))
            self._answer({"error": error.what, "fix": error.fix})
            return
        message = self._reason if isinstance(error, HTTPError) else "the queue failed; see its log"
        self._answer({"error": message, "fix": ""})


def open_ledger(folder: ClassDir) -> Ledger:
    """Open the ledger of a class; before an empty one begins, remove all containers.

    So no container uses a GPU that the ledger calls free.

    Raises:
        LabError: The ledger cannot be read, or the engine refuses. The next service tries again.
    """
    if not ledger_file(folder).exists():
        remove_environments(folder, [seat.name for seat in folder.stored().plan.seats])
    return read_ledger(folder)


async def serve(turns: Turns, tokens: Mapping[str, str], address: str) -> None:
    """Serve the seats until SIGTERM. The environments stay as they are."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = HTTPServer(application(turns, tokens), **LIMITS)
    server.listen(names.QUEUE_PORT, address)
    work = asyncio.create_task(turns.run())
    await stopped.wait()
    work.cancel()
    server.stop()
    await turns.finish_steps(_STOP_S)


def main(class_name: str) -> None:
    """Serve a class."""
    logging.basicConfig(format="%(asctime)s queue: %(message)s")
    set_pdeathsig(os.getppid())  # a new JupyterHub starts a new service
    folder = ClassDir(class_name)
    stored = folder.stored()
    plan = stored.plan
    seats = {seat.name: seat for seat in plan.seats}
    tokens = {queue_token(folder, name): name for name in (*seats, TEACHER)}
    with locked(ledger_file(folder).with_name("lock"), f"the queue of the class {plan.name!r}"):
        host = Host(plan.name, seats, Path(stored.root), Engine())
        turns = Turns(open_ledger(folder), host)
        asyncio.run(serve(turns, tokens, names.gateway(plan.proxy_network)))
        # The threads of boots may wait for the engine; the next service repeats their steps.
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
