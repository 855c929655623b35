"""The queue's HTTP interface; `lab.backends.classroom.protocol` describes it.

Everything from a seat is untrusted: each request has a size limit, each message a type, each run an
id that is no path, and an environment of another seat does not exist for it.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePath
from typing import IO, Any, Final, TypeVar, cast

import msgspec
from tornado.iostream import StreamClosedError
from tornado.web import Application, HTTPError, RequestHandler, stream_request_body

from lab.backends.classroom.protocol import (
    FAILED,
    GONE,
    MAX_FILES,
    MAX_PARTS_BYTES,
    POLL_S,
    READS,
    LogOptions,
    Message,
    NetworkFault,
    Order,
    State,
    StreamOptions,
    kind_of,
)
from lab.backends.engine.client import NotFound
from lab.backends.environment import Environment
from lab.classroom.queue.ledger import Entry
from lab.classroom.queue.turns import Turns
from lab.errors import InputError, LabError
from lab.network.fault import fault_of
from lab.volume import RUN_ID, Chunk, Request
from lab.volume.control import INCOMING
from lab.volume.framing import decode_frames, encode_frame

T = TypeVar("T")

SeatOf = Callable[[str], Awaitable[str | None]]
"""Returns the seat of a token, or `TEACHER`; None if the token has no access to the queue."""

TEACHER: Final = "*"
"""The teacher in place of a seat. No seat has this name."""

MAX_REQUESTS: Final = 16
"""The maximum number of requests of one seat at the same time."""

_MAX_UPLOADS: Final = 2
_UPLOAD_S: Final = 30.0
"""The time limit of an upload, in seconds. It is shorter than the time that another seat waits."""

_MAX_TEXT: Final = 4096
_REQUEST_FILE: Final = "request.json"
_STATUS: Final = {"input": 400, "busy": 409, "gone": 404, "failed": 500}
_ENTRY: Final = r"/environments/([0-9a-f]{16})"
_END: Final = object()


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
            (r"/environments", _Environments, shared),
            (_ENTRY, _Environment, shared),
            (rf"{_ENTRY}/({'|'.join(READS)})", _Read, shared),
            (rf"{_ENTRY}/post", _Post, shared),
            (rf"{_ENTRY}/fault", _Fault, shared),
            (rf"{_ENTRY}/submit", _Submit, {**shared, "slots": asyncio.Semaphore(_MAX_UPLOADS)}),
            (rf"{_ENTRY}/stream", _Stream, shared),
            (rf"{_ENTRY}/logs", _Logs, shared),
        ],
        default_handler_class=_Unknown,
        default_handler_args=shared,
    )


class _Handler(RequestHandler):
    """Finds the seat of each request, and answers errors as JSON."""

    def initialize(
        self, turns: Turns, seat_of: SeatOf, active: Counter[str], max_requests: int
    ) -> None:
        self.turns, self._seat_of, self._active = turns, seat_of, active
        self._max_requests = max_requests
        self.seat = ""
        self._rest = ExitStack()

    async def prepare(self) -> None:
        kind, _, token = self.request.headers.get("Authorization", "").partition(" ")
        seat = await self._seat_of(token) if kind.lower() == "token" and token else None
        if seat is None:
            raise HTTPError(403, reason="this token has no access to the queue")
        if self._active[seat] >= self._max_requests:
            raise HTTPError(429, reason="too many requests at the same time")
        self.seat = seat
        self._active[seat] += 1
        self._rest.callback(self._active.subtract, [seat])

    def on_finish(self) -> None:
        self._rest.close()

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
            return msgspec.json.decode(self.request.body, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InputError(
                f"not a message of the queue: {error}", "update lab in the seat"
            ) from error

    def answer(self, value: object) -> None:
        """Answer with JSON."""
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(value))

    def entry(self, id_: str) -> Entry:
        """Return an environment of the seat.

        Raises:
            Gone: The seat has none with this id.
        """
        return self.turns.find(self.seat, id_)

    async def environment(self, id_: str) -> Environment:
        """Return what is left of an environment of the seat.

        Raises:
            InputError: Its turn has not begun.
        """
        entry = self.entry(id_)
        found = await self.turns.environment(entry)
        if found is None:
            raise InputError(f"environment {entry.name!r} waits for its turn", "see `lab ls`")
        return found

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:  # noqa: ANN401  (tornado's own)
        """Log what is no error of the seat."""
        if not isinstance(value, LabError | StreamClosedError):
            super().log_exception(typ, value, tb)

    def write_error(self, status_code: int, **kwargs: Any) -> None:  # noqa: ANN401  (tornado's own)
        """Answer an error as JSON."""
        error = kwargs.get("exc_info", (None, None))[1]
        if isinstance(error, LabError):
            kind = GONE if isinstance(error, NotFound) else kind_of(error)
            self.set_status(_STATUS[kind])
            self.answer({"error": error.what, "fix": error.fix, "kind": kind})
            return
        what = self._reason if isinstance(error, HTTPError) else "the queue failed; see its log"
        self.answer({"error": what, "fix": "", "kind": FAILED})


class _Unknown(_Handler):
    async def prepare(self) -> None:
        await super().prepare()
        raise HTTPError(404, reason="the queue has no such address")


class _Environments(_Handler):
    def get(self) -> None:
        self.answer([self.turns.status(each) for each in self.turns.of_seat(self.seat)])

    def post(self) -> None:
        if self.seat == TEACHER:
            raise InputError("the teacher has no seat", "use a seat, or `--backend compose`")
        entry = self.turns.request(self.message(Order), self.seat)
        self.set_status(201)
        self.answer(self.turns.status(entry))

    def delete(self) -> None:
        """End all environments of a seat, for the teacher."""
        if self.seat != TEACHER:
            raise HTTPError(403, reason="only the teacher ends all environments of a seat")
        keep = self.get_query_argument("keep", "") == "1"
        for entry in self.turns.of_seat(self.get_query_argument("seat")):
            self.turns.remove(entry, keep=keep, reason="the teacher ended it")
        self.answer({})


class _Environment(_Handler):
    async def get(self, id_: str) -> None:
        self.entry(id_)
        revision = self.get_query_argument("revision", "")
        if revision.isdecimal():
            await self.turns.changes(int(revision[:20]), POLL_S)
        self.answer(self.turns.status(self.entry(id_)))

    def delete(self, id_: str) -> None:
        keep = self.get_query_argument("keep", "") == "1"
        self.turns.remove(self.entry(id_), keep=keep)
        self.answer({})


_CALLS: Final[Mapping[str, Callable[[Environment], object]]] = {
    "tasks": lambda environment: environment.tasks(),
    "cluster_spec": lambda environment: environment.cluster_spec(),
    "runs": lambda environment: [each.to_json() for each in environment.runs()],
    "collected": lambda environment: environment.collected(),
    "provenance": lambda environment: environment.provenance(),
    "boot_file": lambda environment: environment.boot_file(),
    "sources": lambda environment: environment.sources_sha256,
}
_BEFORE: Final[Mapping[str, object]] = {
    "tasks": [],
    "cluster_spec": {},
    "runs": [],
    "collected": {},
}
"""The answers before the turn of an environment."""


class _Read(_Handler):
    async def get(self, id_: str, name: str) -> None:
        entry = self.entry(id_)
        with self.turns.streaming(id_):
            environment = await self.turns.environment(entry)
            if environment is None:
                self.answer(_BEFORE.get(name, ""))
            else:
                self.answer(await self.turns.call(_CALLS[name], environment))


class _Post(_Handler):
    async def post(self, id_: str) -> None:
        message = self.message(Message)
        check_run_id(message.run_id)
        check_text(message.text)
        self.entry(id_)
        with self.turns.streaming(id_):
            environment = await self.environment(id_)
            await self.turns.call(environment.post, message.command, message.run_id, message.text)
        if message.command == "collected":
            await self.turns.check_collected(self.entry(id_))
        self.answer({})


class _Fault(_Handler):
    async def post(self, id_: str) -> None:
        message = self.message(NetworkFault)
        try:
            fault_of(message.arguments)
        except ValueError as error:
            raise InputError(f"no such fault: {error}", "see `lab fault --help`") from error
        environment = await self.environment(id_)
        check_text(message.node)
        await self.turns.call(environment.inject_network_fault, message.node, message.arguments)
        self.answer({})


@stream_request_body
class _Submit(_Handler):
    """Receives the request and its parts as frames, into a file first."""

    def initialize(self, slots: asyncio.Semaphore, **shared: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        super().initialize(**shared)
        self._slots, self._complete = slots, False

    async def prepare(self) -> None:
        await super().prepare()
        own = f"{self.seat}/submit"  # no seat has this name
        if self._active[own]:
            raise HTTPError(429, reason="this seat submits another run")
        self._active[own] += 1
        self._rest.callback(self._active.subtract, [own])
        connection = cast("Any", self.request.connection)
        connection.set_max_body_size(MAX_PARTS_BYTES)
        connection.set_body_timeout(_UPLOAD_S)
        await self._slots.acquire()
        self._rest.callback(self._slots.release)
        self._body = self._rest.enter_context(tempfile.TemporaryFile())  # noqa: SIM115

    def data_received(self, chunk: bytes) -> None:
        if not self._body.closed:
            self._body.write(chunk)

    def on_connection_close(self) -> None:
        """Release what an upload that breaks off holds; tornado calls no `on_finish` then."""
        super().on_connection_close()
        if not self._complete:
            self._rest.close()

    async def post(self, id_: str) -> None:
        self._complete = True
        entry = self.entry(id_)
        if entry.state is not State.UP:
            raise InputError(f"environment {entry.name!r} is {entry.state}", "see `lab ls`")
        environment = await self.environment(id_)
        await self.turns.call(submit, environment, self._body)
        self.answer({})


class _Streamed(_Handler):
    """Streams pieces from a generator that blocks, in a thread of its own."""

    async def send(self, id_: str, pieces: Iterator[bytes]) -> None:
        """Send pieces until the last, or until the seat has closed the connection.

        Raises:
            LabError: The generator failed before its first piece.
        """
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, "stream")
        with self.turns.streaming(id_):
            following = partial(loop.run_in_executor, thread, next, pieces, _END)
            try:
                piece = await following()
                self.set_header("Content-Type", "application/octet-stream")
                while piece is not _END:
                    self.write(cast("bytes", piece))
                    await self.flush()
                    piece = await following()
            except StreamClosedError:
                return
            except LabError:
                if not self._headers_written:
                    raise
                # The seat must not take this for the end.
                cast("Any", self.request.connection).stream.close()
                return
            finally:
                thread.submit(cast("Any", pieces).close)
                thread.shutdown(wait=False)
        self.finish()


class _Stream(_Streamed):
    async def post(self, id_: str) -> None:
        options = self.message(StreamOptions)
        check_run_id(options.run_id)
        environment = await self.environment(id_)
        await self.send(id_, _frames(environment, options))


def _frames(environment: Environment, options: StreamOptions) -> Iterator[bytes]:
    for chunk in environment.stream(
        options.run_id,
        options.offsets,
        follow=options.follow,
        all_sizes=options.all_sizes,
        rest=options.rest,
    ):
        yield encode_frame(chunk)


class _Logs(_Streamed):
    async def post(self, id_: str) -> None:
        options = self.message(LogOptions)
        environment = await self.environment(id_)
        lines = environment.logs(
            options.tasks, follow=options.follow, tail=options.tail, since=options.since
        )
        await self.send(id_, (f"{line}\n".encode() for line in lines))


def check_run_id(run_id: str) -> None:
    """Check that a text is the id of a run.

    Raises:
        InputError: It is not.
    """
    if not RUN_ID.fullmatch(run_id):
        raise InputError(f"not a run id: {run_id!r}", "see `lab runs`")


def check_text(text: str) -> None:
    """Check that a text can be an argument of a command.

    Raises:
        InputError: It is too long, or has control characters.
    """
    if len(text) > _MAX_TEXT or not text.isprintable() or text.startswith("-"):
        raise InputError("the text is too long, or has control characters", "shorten it")


def submit(environment: Environment, body: IO[bytes]) -> None:
    """Submit the request and the parts in frames to an environment.

    Raises:
        InputError: They are invalid or too large, or the request is for another environment.
        LabError: The environment refuses.
    """
    body.seek(0)
    with tempfile.TemporaryDirectory(prefix="lab-queue-") as folder:
        try:
            request = unpack(decode_frames(iter(partial(body.read, 1 << 20), b"")), Path(folder))
        except ValueError as error:
            raise InputError(f"not a request: {error}", "update lab in the seat") from error
        except OSError as error:
            raise LabError(f"the queue cannot store the run's files: {error.strerror}") from error
        if request.cluster != environment.cluster_spec():
            raise InputError("the request is for another environment", "see `lab ps`")
        parts = {name: path for name in INCOMING if (path := Path(folder) / name).is_dir()}
        environment.submit(request, parts)


def unpack(frames: Iterable[Chunk | None], folder: Path) -> Request:
    """Write the files of a run's parts below a directory; return its request.

    Raises:
        ValueError: A frame is invalid, or does not belong here.
    """
    chunks = (chunk for chunk in frames if chunk is not None)
    first = next(chunks, None)
    if first is None or first.path != _REQUEST_FILE:
        raise ValueError("it does not begin with the request")
    request = Request.from_json(first.data.decode())
    written, folders = itertools.count(1), set[PurePath]()
    for chunk in chunks:
        if chunk.path.partition("/")[0] not in INCOMING or "/" not in chunk.path or chunk.fault:
            raise ValueError(f"{chunk.path!r:.80} is no file of a part")
        folders.update(PurePath(chunk.path).parents)
        if next(written) + len(folders) > MAX_FILES:
            raise ValueError(f"it has more than {MAX_FILES:,} files, directories or pieces")
        path = folder / chunk.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(chunk.data)
    return request
