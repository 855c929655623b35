"""An environment of the queue, as its seat sees it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from lab.backends.classroom.client import Queue
from lab.backends.classroom.protocol import (
    MAX_JSON_BYTES,
    Gone,
    LogOptions,
    Message,
    NetworkFault,
    State,
    Status,
    StreamOptions,
)
from lab.backends.environment import (
    NO_PARTS,
    Command,
    Environment,
    KeepVolume,
    Precondition,
    TaskInfo,
    no_precondition,
    remove_volume,
)
from lab.backends.names import CLASS
from lab.errors import InputError, LabError
from lab.gpu.evidence import GpuView
from lab.text import visible
from lab.volume import Chunk, Request
from lab.volume.framing import MAX_DATA, FrameError, decode_frames, encode_frame

T = TypeVar("T")

_END_S: Final = 90.0
"""Seconds that the queue has to end an environment."""

_POLL_S: Final = 0.5
_OFFSETS_BYTES: Final = MAX_JSON_BYTES // 2


class ClassEnvironment(Environment):
    """An environment of the queue; see `Environment`.

    Attributes:
        backend: `class`.
        project: Its name.
        folder: The project's directory in this seat.
        cluster_sha256: Digest of its config.
        tensorflow: The TensorFlow version of its tasks.
        status: Its status when this object was made.
    """

    backend = CLASS
    is_local = False

    def __init__(self, queue: Queue, status: Status) -> None:
        self._queue = queue
        self.status = status
        self.project = status.name
        self.folder = status.folder
        self.cluster_sha256 = status.cluster_sha256
        self.tensorflow = status.tensorflow

    @property
    def is_up(self) -> bool:
        """Whether its containers ran when this object was made."""
        return self.status.state in {State.UP, State.ENDING}

    @property
    def sources_sha256(self) -> str:
        """Digest of lab's code in its containers."""
        return str(self._read("sources", str))

    def cluster_spec(self) -> dict[str, list[str]]:
        """TensorFlow's cluster spec; empty before its turn."""
        return self._read("cluster_spec", dict[str, list[str]])

    def tasks(self) -> list[TaskInfo]:
        """All tasks, in the plan's order; none before its turn."""
        return self._read("tasks", list[TaskInfo])

    def submit(self, request: Request, parts: Mapping[str, Path] = NO_PARTS) -> None:
        """Submit a request and its parts to the queue; see `Environment`."""
        with tempfile.TemporaryFile() as body:
            for chunk in _chunks(request, parts):
                body.write(encode_frame(chunk))
            size = body.tell()
            body.seek(0)
            self._queue.upload(self._path("submit"), body, size)

    def post(self, command: Command, run_id: str, text: str) -> None:
        """Write one message for a run to the run volume; see `Environment`."""
        self._send("post", Message(command=command, run_id=run_id, text=text))

    def block_host(self) -> None:
        """Do nothing: the service has blocked the host at the boot."""

    def inject_network_fault(self, node: str, arguments: Sequence[str]) -> None:
        """Inject a fault into a node's network; see `Environment`."""
        self._send("fault", NetworkFault(node=node, arguments=tuple(arguments)))

    def runs(self) -> list[Request]:
        """All requests on the run volume, oldest first."""
        try:
            return [Request.from_json(text) for text in self._read("runs", list[str])]
        except ValueError as error:
            raise _invalid(error) from error

    def collected(self) -> Mapping[str, str]:
        """Run id to run store, as noted on the volume; see `Environment`."""
        return self._read("collected", dict[str, str])

    def stream(
        self,
        run_id: str,
        offsets: Mapping[str, int],
        *,
        follow: bool,
        all_sizes: bool = False,
        rest: bool = False,
    ) -> Iterator[Chunk | None]:
        """Stream the files of a run, from the given byte offsets on; see `Environment`."""
        options = StreamOptions(
            run_id=run_id,
            offsets=_first(offsets, _OFFSETS_BYTES),
            follow=follow,
            all_sizes=all_sizes,
            rest=rest,
        )
        with closing(self._queue.stream(self._path("stream"), asdict(options))) as pieces:
            try:
                yield from decode_frames(pieces)
            except FrameError as error:
                raise Gone(
                    f"collecting run {run_id} stopped: {error}",
                    f"continue with `lab collect {run_id}`",
                ) from error

    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        """Lines of the agents' standard output; see `Environment`."""
        options = LogOptions(tasks=tuple(tasks), follow=follow, tail=tail, since=since)
        with closing(self._queue.stream(self._path("logs"), asdict(options))) as pieces:
            for line in _lines(pieces):
                yield visible(line)

    def shell(self, task: str) -> list[str]:
        """Refuse: a seat has no shell in the containers of the host.

        Raises:
            InputError: Always.
        """
        raise InputError(
            "`lab shell` opens no shell in an environment of the queue",
            "use `lab logs`, or `--backend local`",
        )

    def probe_gpus(self, *, tensorflow: bool) -> dict[str, GpuView]:
        """Probe nothing: the service verifies the GPUs at the boot."""
        return {}

    def provenance(self) -> dict[str, str]:
        """What really ran: image digest, versions of engine and kernel."""
        return self._read("provenance", dict[str, str])

    def boot_file(self) -> tuple[str, str]:
        """File name and text of what was booted."""
        return self._read("boot_file", tuple[str, str])

    def down(
        self,
        *,
        unless: Precondition = no_precondition,
        keeps: KeepVolume = remove_volume,
    ) -> None:
        """Remove this environment, or give its place in the queue back; see `Environment`.

        Raises:
            LabError: The queue does not end it.
        """
        try:
            unless()
            keep = keeps()
            self.give_back(keep=keep)
            until = time.monotonic() + _END_S
            while self.refreshed().status.state is not State.ENDED or not keep:
                if time.monotonic() > until:
                    raise LabError(
                        f"the queue has not ended {self.project} after {_END_S:g} s", "see `lab ls`"
                    )
                time.sleep(_POLL_S)
        except Gone:
            return

    def give_back(self, *, keep: bool) -> None:
        """Request the end of this environment, and do not wait for it.

        Args:
            keep: Whether its run volume is kept.

        Raises:
            LabError: The queue does not answer.
        """
        self._queue.request("DELETE", f"/{self.status.id}?keep={int(keep)}")

    def refreshed(self, revision: int | None = None) -> ClassEnvironment:
        """Return this environment with its status now.

        Args:
            revision: Wait until its revision is another one, with a time limit.

        Raises:
            Gone: The queue has removed it.
            LabError: The queue does not answer.
        """
        query = "" if revision is None else f"?revision={revision}"
        found = self._queue.request("GET", f"/{self.status.id}{query}")
        return ClassEnvironment(self._queue, converted(found, Status))

    def _read(self, name: str, kind: type[T]) -> T:
        return converted(self._queue.request("GET", self._path(name)), kind)

    def _send(self, name: str, message: Message | NetworkFault) -> None:
        self._queue.request("POST", self._path(name), asdict(message))

    def _path(self, name: str) -> str:
        return f"/{self.status.id}/{name}"


def converted(value: Any, kind: type[T]) -> T:  # noqa: ANN401  (JSON)
    """Return an answer of the queue as an object of its type.

    Raises:
        LabError: It has another type.
    """
    import msgspec  # noqa: PLC0415  (only a seat needs it)

    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _invalid(error) from error


def _invalid(error: Exception) -> LabError:
    return LabError(
        f"the queue has another version of lab than this seat: {error}", "ask your teacher"
    )


def _first(offsets: Mapping[str, int], max_bytes: int) -> dict[str, int]:
    """Return the offsets that fit; files whose offsets are left out are sent from the beginning."""
    found: dict[str, int] = {}
    for path, offset in offsets.items():
        max_bytes -= len(path.encode()) + 30
        if max_bytes < 0:
            break
        found[path] = offset
    return found


def _chunks(request: Request, parts: Mapping[str, Path]) -> Iterator[Chunk]:
    """Yield the request and the files of its parts."""
    yield Chunk("request.json", None, request.to_json().encode())
    for name, folder in parts.items():
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            inside = f"{name}/{path.relative_to(folder).as_posix()}"
            with path.open("rb") as file:
                yield from _pieces(inside, file)


def _pieces(path: str, file: IO[bytes]) -> Iterator[Chunk]:
    offset, data = 0, file.read(MAX_DATA)
    yield Chunk(path, offset, data)
    while data:
        offset += len(data)
        if data := file.read(MAX_DATA):
            yield Chunk(path, offset, data)


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    left = b""
    for piece in pieces:
        *lines, left = (left + piece).split(b"\n")
        yield from lines
