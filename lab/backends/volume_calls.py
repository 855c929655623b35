"""Environments that read and write their run volume by calls of `python -m lab.protocol.volume`."""

from __future__ import annotations

import io
import json
import tarfile
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

from lab.backends.engine.client import NotFound
from lab.backends.environment import NO_PARTS, Command, Environment, Wanted
from lab.backends.state import Busy, lock_environment
from lab.base.errors import LabError
from lab.base.text import short
from lab.protocol.volume import Chunk, Request
from lab.protocol.volume.control import EXIT_BUSY, EXIT_NO_SUCH_RUN
from lab.protocol.volume.framing import FrameError, decode_frames

MODULE: Final = ("python", "-m", "lab.protocol.volume")
KILLED: Final = 128
"""An exit code above it means a signal: the container stopped during the call."""

NOT_STARTED: Final = 126
"""The exit code of a call that could not be started: the container has just ended."""

_USER: Final = 1000
"""The user of the tasks, which must be able to read and move uploaded files."""

_MAX_ARGUMENT_BYTES: Final = 100_000
"""The size limit of one argument of a command line; Linux refuses 128 KiB."""

_MAX_ARGUMENTS: Final = 10
"""The number of arguments with offsets: a command line has at most 2 MiB. Files whose offsets are
left out are sent from the beginning."""


# It raises `NotFound` if the container stopped during the call, and another `LabError` if the call
# failed; the message is the end of its standard error.
Channel = Callable[..., Generator[bytes, None, None]]
"""Calls the volume's module in one container; yields pieces of its standard output."""


class CalledEnvironment(Environment):
    """The part of an environment that uses only such calls."""

    @abstractmethod
    def channel(self) -> Channel:
        """Return a channel to the run volume.

        Raises:
            NotFound: There is no run volume.
            LabError: It cannot be reached.
        """

    def avoid(self) -> None:
        """Prefer other containers, because the last one failed."""

    def call(self, *arguments: str) -> bytes:
        """Call the volume's module, and return what it prints; see `Channel`."""
        return b"".join(self.channel()(*arguments))

    @abstractmethod
    def upload(self, run_id: str, parts: Mapping[str, Path]) -> None:
        """Copy what a run needs to the run volume: its parts into `incoming/<run_id>/`.

        Raises:
            LabError: The volume refuses it.
        """

    def submit(self, request: Request, parts: Mapping[str, Path] = NO_PARTS) -> None:
        """Submit a request to the agents; see `Environment`.

        Raises:
            LabError: Another run is active, or an agent does not run.
        """
        with lock_environment(self.backend, self.project, shared=True):
            self.require_agents()
            self.upload(request.run_id, parts)
            self.call("submit", request.to_json())

    def post(self, command: Command, run_id: str, text: str) -> None:
        """Write one message for a run to the run volume; see `Environment`."""
        self.call(command, run_id, text)

    def runs(self) -> list[Request]:
        """All requests on the run volume, oldest first."""
        try:
            channel = self.channel()
        except NotFound:
            return []  # half booted: it has no volume yet
        text = b"".join(channel("requests")).decode("utf-8", errors="replace")
        try:
            return [Request.from_json(line) for line in text.splitlines()]
        except ValueError as error:
            raise LabError(
                f"the run volume of {self.project} holds {error}", "see `lab shell`"
            ) from error

    def collected(self) -> Mapping[str, str]:
        """Run id to run store, as noted on the volume; see `Environment`."""
        # Imported here: few commands need it.
        import msgspec  # noqa: PLC0415

        try:
            text = self.call("collected")
        except NotFound:
            return {}  # half booted: it has no volume yet
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise LabError(
                f"the run volume of {self.project} returned invalid notes: {error}"
            ) from error

    def chunks(self, wanted: Wanted) -> Iterator[Chunk | None]:
        """Stream files of a run; see `Environment`."""
        options = {
            "--follow": wanted.follow,
            "--all-sizes": wanted.all_sizes,
            "--rest": wanted.rest,
        }
        switches = [option for option, is_set in options.items() if is_set]
        parts = islice(_split(wanted.offsets), _MAX_ARGUMENTS)
        with closing(self.channel()("ship", wanted.run_id, *parts, *switches)) as stream:
            try:
                yield from decode_frames(stream)
            except FrameError as error:
                self.avoid()
                raise NotFound(
                    f"collecting run {wanted.run_id} stopped: {error}",
                    f"continue with `lab attach {wanted.run_id}`",
                ) from error
            except NotFound:
                self.avoid()
                raise


def raise_for_exit_code(doing: str, code: int | None, printed: bytes) -> None:
    """Raise the error of a call that failed.

    Args:
        doing: What the call does, for the message.
        code: Its exit code; None if it is unknown.
        printed: The end of its standard error.

    Raises:
        NotFound: The container stopped during the call.
        Busy: Another run is under way.
        LabError: It failed.
    """
    lines = printed.decode("utf-8", errors="replace").strip().splitlines()
    last = short(lines[-1]) if lines else "no output"
    if code == 0:
        return
    if code is None or code == NOT_STARTED or code > KILLED:
        raise NotFound(f"{doing}: the container stopped during the call", "see `lab ps`")
    if code == EXIT_BUSY:
        raise Busy(last, "follow it with `lab attach`")
    if code == EXIT_NO_SUCH_RUN:
        raise LabError(last, "see `lab runs`")
    raise LabError(f"{doing}: {last}", "see `lab logs`")


def archive_of(source: Path, inside: PurePosixPath) -> bytes:
    """Return a tar file whose entries all belong to the tasks' user."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as archive:
        for parent in reversed(inside.parents[:-1]):
            archive.add(source, str(parent), recursive=False, filter=_owned)
        for path in sorted([source, *source.rglob("*")]):
            name = str(inside / path.relative_to(source))
            archive.add(path, name, recursive=False, filter=_owned)
    return buffer.getvalue()


def _owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = _USER
    entry.uname = entry.gname = ""
    entry.mtime = 0
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


def _split(offsets: Mapping[str, int]) -> Iterator[str]:
    """Yield the offsets as JSON, split by size into arguments; at least one."""
    part: dict[str, int] = {}
    left = _MAX_ARGUMENT_BYTES
    for path, offset in offsets.items():
        size = len(json.dumps({path: offset}))
        if size > left:
            yield json.dumps(part)
            part, left = {}, _MAX_ARGUMENT_BYTES
        part[path] = offset
        left -= size
    yield json.dumps(part)
