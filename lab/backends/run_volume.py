"""The run volume as a directory of this host, or by calls of `python -m lab.protocol.volume`."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

from lab.backends.state import Busy
from lab.base.errors import LabError
from lab.protocol.volume import Chunk, Volume, control
from lab.protocol.volume.framing import FrameError, decode_frames
from lab.protocol.volume.transfer import stream

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


class NotFound(LabError):  # noqa: N818  (a state)
    """A part of the environment does not exist any more: a container, a network, a volume."""


class NoVolume(NotFound):
    """The environment has no run volume: it is half booted, or removed."""


class RunVolume(ABC):
    """The run volume of an environment, the only thing that its client and its agents share.

    It is a directory here, or calls in a container reach it. See `lab.protocol.volume`.
    """

    @abstractmethod
    def put(self, run_id: str, parts: Mapping[str, Path]) -> None:
        """Copy directories of this host to the volume, into `incoming/<run_id>/`.

        Args:
            run_id: The run, whose request follows.
            parts: Name there to directory.

        Raises:
            LabError: The volume refuses them.
        """

    @abstractmethod
    def call(self, *arguments: str) -> bytes:
        """Execute a command of `python -m lab.protocol.volume`; return what it prints.

        Raises:
            NoVolume: There is no run volume.
            Busy: Another run is under way.
            LabError: It cannot be reached, or the command failed.
        """

    @abstractmethod
    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, all_sizes: bool, rest: bool
    ) -> Generator[Chunk | None, None, None]:
        """Stream the files of a run; see `Environment.stream`."""


class DirectoryVolume(RunVolume):
    """A run volume that this process can read and write.

    Attributes:
        volume: Its files.
    """

    def __init__(self, root: Path) -> None:
        self.volume = Volume(root)

    def put(self, run_id: str, parts: Mapping[str, Path]) -> None:
        """Copy directories to the volume; see `RunVolume`."""
        incoming = self.volume.incoming(run_id)
        with self.errors():
            try:
                for name, folder in parts.items():
                    shutil.copytree(folder, incoming / name)
            except BaseException:
                shutil.rmtree(incoming, ignore_errors=True)
                raise

    def call(self, *arguments: str) -> bytes:
        """Execute a command in this process; see `RunVolume`."""
        with self.errors():
            return control.execute(self.volume, arguments).encode()

    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, all_sizes: bool, rest: bool
    ) -> Generator[Chunk | None, None, None]:
        """Stream the files of a run; see `Environment.stream`."""
        with self.errors():
            yield from stream(
                self.volume, run_id, offsets, follow=follow, all_sizes=all_sizes, rest=rest
            )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert errors of the run volume into errors for the user.

        Raises:
            Busy: Another run is under way.
            LabError: There is no such run, or the volume cannot be used.
        """
        try:
            yield
        except control.VolumeBusy as busy:
            raise Busy(str(busy), f"follow it with `lab attach {busy.run_id}`") from busy
        except control.NoSuchRun as error:
            raise LabError(str(error), "see `lab runs`") from error
        except OSError as error:
            raise LabError(
                f"the run volume {self.volume.root} cannot be used: {error.strerror}",
                "free space there, and check that you own it",
            ) from error


class CalledVolume(RunVolume):
    """A run volume that only the module `lab.protocol.volume` in a container reads and writes.

    Attributes:
        module: The command line of the module.
    """

    module: Final = MODULE

    @abstractmethod
    def pipe(self, *arguments: str) -> Generator[bytes, None, None]:
        """Call the module in a container; yield pieces of its standard output.

        Raises:
            NoVolume: There is no run volume.
            NotFound: The container stopped during the call.
            LabError: It cannot be reached, or the command failed; see `raise_for_exit_code`.
        """

    def call(self, *arguments: str) -> bytes:
        """Call the module, and return what it prints; see `RunVolume`."""
        return b"".join(self.pipe(*arguments))

    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, all_sizes: bool, rest: bool
    ) -> Generator[Chunk | None, None, None]:
        """Stream the files of a run; see `Environment.stream`."""
        options = {"--follow": follow, "--all-sizes": all_sizes, "--rest": rest}
        switches = [option for option, is_set in options.items() if is_set]
        parts = islice(_split(offsets), _MAX_ARGUMENTS)
        with closing(self.pipe("ship", run_id, *parts, *switches)) as pieces:
            try:
                yield from decode_frames(pieces)
            except FrameError as error:
                raise NotFound(
                    f"collecting run {run_id} stopped: {error}",
                    f"continue with `lab attach {run_id}`",
                ) from error


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
    last = lines[-1] if lines else "no output"
    if code == 0:
        return
    if code is None or code == NOT_STARTED or code > KILLED:
        raise NotFound(f"{doing}: the container stopped during the call", "see `lab ps`")
    if code == control.EXIT_BUSY:
        raise Busy(last, "follow it with `lab attach`")
    if code == control.EXIT_NO_SUCH_RUN:
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
