"""Which lab environment holds which GPUs: one record for all users of this host.

The record is a directory with a file for each environment, and a lock on the directory. Each file
belongs to the user who booted the environment. No other user can change it, and the owner of the
file is the owner of the environment. A file counts for nothing if its environment has ended, or if
an earlier boot of the host has left it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from lab.backends.process import ProcessHandle, boot_id
from lab.backends.state import Busy, with_lock_retry
from lab.errors import LabError
from lab.gpu import NvmlError, read_host
from lab.placement.plan import Plan
from lab.strict_json import dump
from lab.task.protocol.files import atomic_writer, read_regular
from lab.task.text import short, visible
from lab.threads import with_timeout

VARIABLE: Final = "LAB_GPU_RECORD"
DEFAULT: Final = Path("/var/tmp/lab-gpus")  # noqa: S108  (its files are checked, see above)

_MODE: Final = 0o1777
_MAX_BYTES: Final = 1 << 16
_ENGINE_S: Final = 5.0
_MAX_PID: Final = 1 << 31

Handover = Callable[[ProcessHandle], None]
"""Names the process that from now on stands for the environment."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An environment that holds GPUs.

    Attributes:
        project: The environment's name.
        backend: `local` or `compose`.
        where: What tells apart environments of one name: the state directory of a local one, the
            engine's id of one of containers.
        folder: The project's directory.
        gpus: Device ids, UUIDs where they are known.
        since_unix: When it took them, in seconds since the epoch.
        process: The process that boots it; of a local environment that is up, its supervisor.
    """

    project: str
    backend: str
    where: str
    folder: str
    gpus: tuple[str, ...]
    since_unix: float
    process: ProcessHandle

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the environment: all files of one environment have the same key."""
        return self.backend, self.project, self.where

    def file_name(self, uid: int) -> str:
        """The name of its file if this user has booted it."""
        text = "\0".join((*self.key, str(uid)))
        return f"{self.project}.{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file of the record, and who wrote it."""

    path: Path
    uid: int
    holder: Holder


def directory() -> Path:
    """Where the record lies; all users of the host must have the same."""
    return Path(os.environ.get(VARIABLE) or DEFAULT)


def holder_of(plan: Plan, *, backend: str, where: str, folder: Path) -> Holder:
    """The environment of a plan, as this process boots it now."""
    wanted = dict.fromkeys(gpu for task in plan.tasks for gpu in task.gpus)
    uuids = _uuids() if wanted and plan.mode == "index" else {}
    return Holder(
        project=plan.name,
        backend=backend,
        where=where,
        folder=str(folder),
        gpus=tuple(uuids.get(gpu, gpu) for gpu in wanted),
        since_unix=time.time(),
        process=ProcessHandle.of(os.getpid()),
    )


@contextmanager
def hold_gpus(holder: Holder, *, share: bool) -> Iterator[Handover]:
    """Take an environment's GPUs before it boots; where the block fails, all is as before.

    Args:
        holder: It; where it has no GPUs, nothing is done.
        share: Whether others may hold them too.

    Yields:
        Names another process that stands for it: that of this command ends.

    Raises:
        LabError: Another environment holds one of them, or the record cannot be used.
    """
    if not holder.gpus:
        yield lambda _process: None
        return
    path = directory() / holder.file_name(os.getuid())
    with _locked() as folder:
        if not share:
            _refuse_held(holder, folder)
        before = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        _write(path, holder)
    try:
        yield lambda process: _write(path, replace(holder, process=process))
    except BaseException:
        with suppress(LabError, OSError), _locked():
            path.unlink() if before is None else _replace(path, before)
        raise


def release(backend: str, project: str, where: str) -> None:
    """Forget an environment that was removed; the files of other users count for nothing by now."""
    with suppress(LabError, OSError):
        if not directory().is_dir():
            return
        with _locked() as folder:
            for path in _files(folder):
                with suppress(ValueError, OSError):
                    if _read(path).holder.key == (backend, project, where):
                        path.unlink()


def _refuse_held(holder: Holder, folder: Path) -> None:
    entries = sorted(_entries(folder), key=lambda each: each.holder.since_unix)
    newest = {each.holder.key: each for each in entries}
    for key, entry in newest.items():
        both = [gpu for gpu in entry.holder.gpus if gpu in holder.gpus]
        if not both or key == holder.key:
            continue
        alive = _is_alive(entry.holder)
        if alive is not False:
            raise _held_by(entry, both, known=alive is not None)
        with suppress(OSError):  # it may be another user's: then it stays, and is passed over
            entry.path.unlink()


def _entries(folder: Path) -> Iterator[_Entry]:
    for path in _files(folder):
        try:
            yield _read(path)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            why = (error.strerror or "") if isinstance(error, OSError) else str(error)
            raise LabError(
                f"the GPU record {visible(str(path))} is damaged: {short(why)}",
                "if its owner has no environment up, remove the file; --share goes on without it",
            ) from error


def _held_by(entry: _Entry, gpus: Sequence[str], *, known: bool) -> LabError:
    holder = entry.holder
    more = f" (and {len(gpus) - 1} more)" if len(gpus) > 1 else ""
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(holder.since_unix))
    what = (
        f"GPU {short(gpus[0])}{more} is held by environment {holder.project!r} ({holder.backend})"
        f" of {_user(entry.uid)} since {since}"
    )
    ways = (
        f"wait for `lab down {holder.project}`, name other GPUs in the description"
        " (`gpus: [4, 5]`), or add --share"
    )
    if not known:
        what += "; whether it is still up cannot be seen from here"
        ways += f"; if it has gone, remove {entry.path}"
    return LabError(what, ways)


def _is_alive(holder: Holder) -> bool | None:
    """Whether an environment is up, or boots; None where that cannot be found out."""
    if holder.process.boot != boot_id():
        return False
    if _runs(holder.process):
        return True
    return _containers_run(holder) if holder.backend == "compose" else False


def _runs(process: ProcessHandle) -> bool:
    if process.alive():
        return True
    with suppress(ProcessLookupError):
        try:
            os.kill(process.pid, 0)
        except PermissionError:
            # Where /proc hides the processes of others, another one may have the id by now.
            # psutil takes such a process for one that has ended.
            return not Path(f"/proc/{process.pid}/stat").exists()
    return False


def _containers_run(holder: Holder) -> bool | None:
    # Imported here: docker-py costs 0.2 s, which only this question pays.
    from lab.backends.compose.client import Engine  # noqa: PLC0415
    from lab.backends.compose.containers import PROJECT  # noqa: PLC0415

    def ask() -> bool | None:
        engine = Engine()
        if engine.id() != holder.where:
            return None
        found = engine.containers(f"{PROJECT}={holder.project}")
        return any(each.status in {"running", "paused", "restarting"} for each in found)

    try:
        return with_timeout(_ENGINE_S, ask)
    except (LabError, TimeoutError):
        return None


def _uuids() -> dict[str, str]:
    """Index to UUID of this host's whole GPUs; empty where no driver answers."""
    try:
        return {str(gpu.index): gpu.device_id for gpu in read_host().gpus if not gpu.is_slice}
    except NvmlError:
        return {}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


@contextmanager
def _locked() -> Iterator[Path]:
    """Be alone with the record.

    Raises:
        LabError: It cannot be used, or another command holds it for too long.
    """
    path = directory()
    try:
        descriptor = _open(path)
        try:
            with_lock_retry(lambda: _lock(descriptor))
            yield path
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unusable(path, (error.strerror or str(error)).lower()) from error


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Busy("another command reads or writes the GPU record", "try it again") from error


def _open(path: Path) -> int:
    """The record's directory, which is made where it is missing.

    Raises:
        LabError: Other users could replace its files, or cannot use it.
        OSError: It is a link, or no directory, or cannot be made.
    """
    with suppress(FileExistsError):
        path.mkdir()
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode != _MODE:
        try:
            os.fchmod(descriptor, _MODE)
        except PermissionError as error:
            os.close(descriptor)
            raise _unusable(path, f"its mode is {mode:o}, not 1777") from error
    return descriptor


def _unusable(path: Path, why: str) -> LabError:
    return LabError(
        f"the GPU record {visible(str(path))} cannot be used: {why}",
        f"make it with `sudo install -d -m 1777 {visible(str(path))}`, or name another directory"
        f" for all users in {VARIABLE}",
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if not path.name.startswith("."))


def _read(path: Path) -> _Entry:
    """One file.

    Raises:
        FileNotFoundError: It has gone.
        OSError: It cannot be read.
        ValueError: It is damaged, or does not belong to the user whose name it bears.
    """
    # Imported here: most commands hold no GPU.
    import msgspec  # noqa: PLC0415

    uid = path.lstat().st_uid
    text = read_regular(path, _MAX_BYTES)
    try:
        holder = msgspec.json.decode(text, type=Holder)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if holder.backend not in {"local", "compose"}:
        raise ValueError("its backend is unknown")
    if not 0 < holder.process.pid < _MAX_PID:
        raise ValueError("its process id is no process id")
    if not 0 <= holder.since_unix <= time.time() + 86_400:
        raise ValueError("its time is no time")
    if path.name != holder.file_name(uid):
        raise ValueError("its name is not that of its environment and its owner")
    return _Entry(path, uid, holder)


def _write(path: Path, holder: Holder) -> None:
    _replace(path, (dump(asdict(holder), indent=2) + "\n").encode())


def _replace(path: Path, data: bytes) -> None:
    """Replace a file by a new one, which all may read: an existing one is never written to.

    Raises:
        LabError: It is another user's.
        OSError: It cannot be written.
    """
    # systemd removes old files of this directory, but none with the sticky bit.
    sticky = stat.S_ISVTX if sys.platform == "linux" else 0
    try:
        with atomic_writer(path) as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o644 | sticky)
    except PermissionError as error:
        raise LabError(
            f"the GPU record {visible(str(path))} belongs to another user",
            f"have it removed: `sudo rm {visible(str(path))}`",
        ) from error
