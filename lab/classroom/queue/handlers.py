"""The queue's HTTP interface; `lab.backends.classroom.protocol` describes it.

Everything from a seat is untrusted. The token and the environment are checked before the body is
read. A body is small and has a time limit, each message has a type, and the token alone says whose
environment is meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final, TypeVar

import msgspec
from tornado.web import Application, HTTPError, RequestHandler, stream_request_body

from lab.backends.classroom.protocol import (
    FAILED,
    MAX_BODY_BYTES,
    POLL_S,
    NetworkFault,
    Order,
    kind_of,
)
from lab.classroom.queue.turns import Turns
from lab.errors import InputError, LabError
from lab.network.fault import fault_of

T = TypeVar("T")

SeatOf = Callable[[str], Awaitable[str | None]]
"""Returns the seat of a token, or `TEACHER`; None if the token has no access to the queue."""

TEACHER: Final = "*"
"""The teacher in place of a seat. No seat has this name."""

MAX_REQUESTS: Final = 16
"""The maximum number of requests of one seat at the same time."""

LIMITS: Final[Mapping[str, Any]] = {
    "max_body_size": MAX_BODY_BYTES,
    "max_header_size": 1 << 14,
    "body_timeout": 10.0,
    "idle_connection_timeout": 60.0,
}
"""The limits of the HTTP server, in bytes and seconds."""

_MAX_TEXT: Final = 64
_STATUS: Final = {"input": 400, "busy": 409, "gone": 404, "failed": 500}


def application(turns: Turns, seat_of: SeatOf, max_requests: int = MAX_REQUESTS) -> Application:
    """Return the application.

    Args:
        turns: The environments of the seats.
        seat_of: Finds the seat of a token.
        max_requests: The maximum number of requests of one seat at the same time.
    """
    shared = {
        "turns": turns,
        "seat_of": seat_of,
        "active": Counter(),
        "max_requests": max_requests,
    }
    return Application(
        [
            ("/environment", _Environment, shared),
            ("/environment/fault", _Fault, shared),
            ("/environments", _Seats, shared),
        ],
        default_handler_class=_Unknown,
        default_handler_args=shared,
    )


@stream_request_body
class _Handler(RequestHandler):
    """Finds the seat of each request, collects the body, and answers errors as JSON."""

    def initialize(
        self, turns: Turns, seat_of: SeatOf, active: Counter[str], max_requests: int
    ) -> None:
        self.turns, self._seat_of, self._active = turns, seat_of, active
        self._max_requests = max_requests
        self.seat = ""
        self._body = bytearray()
        self._is_complete = False
        self._counted = ExitStack()

    async def prepare(self) -> None:
        """Check the token and the limit of requests, before the body is read."""
        kind, _, token = self.request.headers.get("Authorization", "").partition(" ")
        seat = await self._seat_of(token) if kind.lower() == "token" and token else None
        if seat is None:
            raise HTTPError(403, reason="this token has no access to the queue")
        if self._active[seat] >= self._max_requests:
            raise HTTPError(429, reason="too many requests at the same time")
        self.seat = seat
        self._active[seat] += 1
        self._counted.callback(self._active.subtract, [seat])
        self.check()

    def check(self) -> None:
        """Check what needs no body.

        Raises:
            LabError: The request is refused.
        """
        if (self.seat == TEACHER) is not isinstance(self, _Seats):
            raise HTTPError(403, reason="this address is not for this token")

    def data_received(self, chunk: bytes) -> None:
        self._body += chunk  # the server limits its size and its time

    def on_connection_close(self) -> None:
        """End a request whose body breaks off; tornado calls no `on_finish` then."""
        super().on_connection_close()
        if not self._is_complete:
            self._counted.close()

    def on_finish(self) -> None:
        self._counted.close()

    def compute_etag(self) -> None:
        """The answers change, so they have no ETag."""

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    def message(self, kind: type[T]) -> T:
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

    def answer(self, value: object) -> None:
        """Answer with JSON."""
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(value))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:  # noqa: ANN401  (tornado's own)
        """Log what is no error of the seat."""
        if not isinstance(value, LabError):
            super().log_exception(typ, value, tb)

    def write_error(self, status_code: int, **kwargs: Any) -> None:  # noqa: ANN401  (tornado's own)
        """Answer an error as JSON."""
        error = kwargs.get("exc_info", (None, None))[1]
        if isinstance(error, LabError):
            kind = kind_of(error)
            self.set_status(_STATUS[kind])
            self.answer({"error": error.what, "fix": error.fix, "kind": kind})
            return
        what = self._reason if isinstance(error, HTTPError) else "the queue failed; see its log"
        self.answer({"error": what, "fix": "", "kind": FAILED})


class _Unknown(_Handler):
    def check(self) -> None:
        raise HTTPError(404, reason="the queue has no such address")


class _Environment(_Handler):
    async def get(self) -> None:
        self._is_complete = True
        self.turns.find(self.seat)
        revision = self.get_query_argument("revision", "")
        if revision.isdecimal():
            await self.turns.changes(int(revision[:20]), POLL_S)
        self.answer(self.turns.status(self.turns.find(self.seat)))

    async def put(self) -> None:
        self._is_complete = True
        entry = await self.turns.order(self.message(Order), self.seat)
        self.answer(self.turns.status(entry))

    def delete(self) -> None:
        self._is_complete = True
        entry = self.turns.find(self.seat)
        if entry.id == self.get_query_argument("id"):  # not one that came after it
            self.turns.give_back(entry)
        self.answer({})


class _Fault(_Handler):
    def check(self) -> None:
        super().check()
        self.turns.find(self.seat)

    async def post(self) -> None:
        self._is_complete = True
        message = self.message(NetworkFault)
        check_text(message.node)
        try:
            fault_of(message.arguments)
        except ValueError as error:
            raise InputError(f"no such fault: {error}", "see `lab fault --help`") from error
        entry = self.turns.find(self.seat)
        await self.turns.inject_fault(entry, message.node, message.arguments)
        self.answer({})


class _Seats(_Handler):
    def delete(self) -> None:
        """End the environment of a seat, for the teacher."""
        self._is_complete = True
        self.turns.end(self.get_query_argument("seat"))
        self.answer({})


def check_text(text: str) -> None:
    """Check that a text can be an argument of a command.

    Raises:
        InputError: It is too long, or has control characters.
    """
    if len(text) > _MAX_TEXT or not text.isprintable() or text.startswith("-"):
        raise InputError("the text is too long, or has control characters", "shorten it")
