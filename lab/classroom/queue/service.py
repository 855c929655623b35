"""The service of the queue: `python -m lab.classroom.queue.service`.

JupyterHub starts it, and starts it again when it ends. The variable `LAB_CLASS` names the class.
`lab.backends.classroom.protocol` describes its messages. Everything from a seat is untrusted: its
address limits the number of its requests, and its token alone says whose environment is meant. Both
are checked before a body is read, which is small and has a time limit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.web import Application, HTTPError, RequestHandler, stream_request_body

from lab.backends.classroom.protocol import ERRORS, NetworkFault, Order
from lab.backends.engine.client import Engine
from lab.backends.state import locked
from lab.classroom import names
from lab.classroom.queue.folder import capacity_of, ledger_file, remove_environments
from lab.classroom.queue.host import Host
from lab.classroom.queue.ledger import Ledger
from lab.classroom.queue.turns import Turns
from lab.classroom.state import ClassDir
from lab.errors import InputError, LabError
from lab.log import LOG
from lab.network.fault import fault_of
from lab.parent_death import set_pdeathsig
from lab.variables import LAB_CLASS

T = TypeVar("T")

SeatOf = Callable[[str], Awaitable[str | None]]
"""Returns the seat of a token, or `TEACHER`; None if the token has no access to the queue."""

TEACHER: Final = "*"
"""The teacher in place of a seat. No seat has this name."""

MAX_REQUESTS: Final = 8
"""The maximum number of requests of one address at the same time: no request waits for a change."""

MAX_BODY_BYTES: Final = 1 << 16

LIMITS: Final[Mapping[str, Any]] = {
    "max_body_size": MAX_BODY_BYTES,
    "max_header_size": 1 << 14,
    "body_timeout": 10.0,
    "idle_connection_timeout": 60.0,
}
"""The limits of the HTTP server, in bytes and seconds."""

_ONE_AT_A_TIME: Final = frozenset({"PUT", "POST"})
"""The methods that take a thread: an address has one of each."""

_MAX_TEXT: Final = 64

_STOP_S: Final = 8.0
"""Seconds for the steps that are under way at the end; JupyterHub waits 10 s."""

_TOKEN_S: Final = 30
"""Seconds for which a token counts as valid without asking JupyterHub again."""


def address_of(request: HTTPServerRequest) -> str:
    """Return the address of a seat, as the relay reports it: the last one, which no seat writes."""
    forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
    return forwarded or str(request.remote_ip)


def application(
    turns: Turns, seat_of: SeatOf, address: Callable[[HTTPServerRequest], str] = address_of
) -> Application:
    """Return the application.

    Args:
        turns: The environments of the seats.
        seat_of: Finds the seat of a token.
        address: Returns the address of the seat of a request.
    """
    # Their warnings are about requests, of which a seat sends any number: no log grows by them.
    logging.getLogger("tornado").setLevel(logging.ERROR)
    shared = {"turns": turns, "seat_of": seat_of, "address": address, "active": set()}
    return Application([("/.*", _Handler, shared)])


@stream_request_body
class _Handler(RequestHandler):
    """Finds the seat of each request, collects the body, and answers errors as JSON."""

    def initialize(
        self,
        turns: Turns,
        seat_of: SeatOf,
        address: Callable[[HTTPServerRequest], str],
        active: set[_Handler],
    ) -> None:
        self._turns, self._seat_of, self._active = turns, seat_of, active
        self.address = address(self.request)
        self._seat = ""
        self._body = bytearray()
        self._is_closed = False

    async def prepare(self) -> None:
        """Check all that needs no body: the number of requests, the token and the environment."""
        method, own = (
            self.request.method,
            [each for each in self._active if each.address == self.address],
        )
        if len(own) >= MAX_REQUESTS or (
            method in _ONE_AT_A_TIME and any(each.request.method == method for each in own)
        ):
            raise HTTPError(429, reason="too many requests at the same time")
        self._active.add(self)
        if "Transfer-Encoding" in self.request.headers:
            raise HTTPError(411, reason="the size of the body is missing")
        kind, _, token = self.request.headers.get("Authorization", "").partition(" ")
        seat = await self._seat_of(token) if kind.lower() == "token" and token else None
        if seat is None:
            raise HTTPError(403, reason="this token has no access to the queue")
        if self.request.path != "/environment":
            raise HTTPError(404, reason="the queue has no such address")
        is_for_teacher = method == "DELETE" and "seat" in self.request.query_arguments
        if (seat == TEACHER) is not is_for_teacher:
            raise HTTPError(403, reason="this request is not for this token")
        if method == "POST":
            self._turns.find(seat)
        if self._is_closed:
            raise HTTPError(400, reason="the connection is closed")
        self._seat = seat

    def data_received(self, chunk: bytes) -> None:
        self._body += chunk  # the server limits its size and its time

    def on_connection_close(self) -> None:
        """End a request whose body breaks off; tornado calls no `on_finish` then."""
        super().on_connection_close()
        self._is_closed = True
        if self._seat and len(self._body) < int(self.request.headers.get("Content-Length", 0)):
            self._active.discard(self)

    def on_finish(self) -> None:
        self._active.discard(self)

    def get(self) -> None:
        self._answer(self._turns.status(self._turns.find(self._seat)))

    async def put(self) -> None:
        entry = await self._turns.order(self._message(Order), self._seat)
        self._answer(self._turns.status(entry))

    async def post(self) -> None:
        fault = self._message(NetworkFault)
        if len(fault.node) > _MAX_TEXT or not fault.node.isprintable() or fault.node[:1] == "-":
            raise InputError("no such node", "see `lab ps`")
        try:
            fault_of(fault.arguments)
        except ValueError as error:
            raise InputError(f"no such fault: {error}", "see `lab fault --help`") from error
        await self._turns.inject_fault(self._seat, fault.node, fault.arguments)
        self._answer({})

    def delete(self) -> None:
        if self._seat == TEACHER:
            self._answer(self._turns.end(self.get_query_argument("seat")))
        else:
            self._answer(self._turns.give_back(self._seat, self.get_query_argument("id")))

    def compute_etag(self) -> None:
        """The answers change, so they have no ETag."""

    def _message(self, kind: type[T]) -> T:
        """Decode the body.

        Raises:
            InputError: It is no such message.
        """
        try:
            return msgspec.json.decode(bytes(self._body), type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
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
        """Log what is no error of the seat."""
        if not isinstance(value, LabError):
            super().log_exception(typ, value, tb)

    def write_error(self, status_code: int, **kwargs: Any) -> None:  # noqa: ANN401  (tornado's own)
        """Answer an error as JSON."""
        error = kwargs.get("exc_info", (None, None))[1]
        if isinstance(error, LabError):
            codes = (code for code, each in ERRORS.items() if isinstance(error, each))
            self.set_status(next(codes, status_code))
            self._answer({"error": error.what, "fix": error.fix})
            return
        what = self._reason if isinstance(error, HTTPError) else "the queue failed; see its log"
        self._answer({"error": what, "fix": ""})


def hub_seat(seats: Collection[str], teacher: str) -> SeatOf:
    """Return a function that asks JupyterHub for the seat of a token.

    Args:
        seats: The names of the seats.
        teacher: The service whose token is the teacher's.
    """
    from jupyterhub.services.auth import HubAuth  # noqa: PLC0415

    auth = HubAuth(cache_max_age=_TOKEN_S)

    async def seat_of(token: str) -> str | None:
        try:
            found: Mapping[str, Any] | None = await auth.user_for_token(token, sync=False)
        except HTTPError as error:
            raise HTTPError(503, reason="JupyterHub does not answer") from error
        if found is None or not auth.check_scopes(auth.access_scopes, found):
            return None
        kind, name = found.get("kind"), str(found.get("name"))
        if (kind, name) == ("service", teacher):
            return TEACHER
        return name if kind == "user" and name in seats else None

    return seat_of


def open_ledger(folder: ClassDir) -> Ledger:
    """Open the ledger of a class; if it cannot be read, set it aside, and begin an empty one.

    First the containers of all environments are removed: then no GPU that is free has a user.

    Raises:
        LabError: The engine refuses. The next service tries again.
    """
    file = ledger_file(folder)
    try:
        return Ledger(file)
    except LabError as error:
        removed = remove_environments(folder)
        aside = file.with_name(f"{file.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
        file.rename(aside)
        LOG.error(f"{error}; it is now {aside.name}, and {removed} environments are removed")
        return Ledger(file)


async def serve(turns: Turns, seat_of: SeatOf, address: str, port: int) -> None:
    """Serve the seats until SIGTERM. The environments stay as they are."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = HTTPServer(application(turns, seat_of), **LIMITS)
    server.listen(port, address)
    work = asyncio.create_task(turns.run())
    await stopped.wait()
    work.cancel()
    server.stop()
    await turns.finish_steps(_STOP_S)


def main() -> None:
    """Serve the class of the variable `LAB_CLASS`."""
    logging.basicConfig(format="%(asctime)s queue: %(message)s")
    set_pdeathsig(os.getppid())  # a new JupyterHub starts a new service
    folder = ClassDir(os.environ[LAB_CLASS])
    stored = folder.stored()
    plan = stored.plan
    seats = {seat.name: seat for seat in plan.seats}
    address = names.gateway(plan.proxy_network)
    with locked(ledger_file(folder).with_name("lock"), f"the queue of the class {plan.name!r}"):
        host = Host(plan.name, seats, Path(stored.root), Engine())
        turns = Turns(plan.name, open_ledger(folder), capacity_of(plan), host)
        asyncio.run(serve(turns, hub_seat(seats, names.SERVICE), address, names.QUEUE_PORT))
        # The threads of boots may wait for the engine; the next service repeats their steps.
        os._exit(0)


if __name__ == "__main__":
    main()
