"""The GPU record: which lab environment holds which GPUs, for all users of this host.

The record is a directory with a lock and one file for each environment. The user who boots the
environment owns the file. No other user can change it. A file is ignored if its environment has
ended, or if it is from an earlier boot of the host. Every user can add files, so a file that `lab`
cannot have written is reported and ignored.
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

from lab.backends.names import CAPABILITIES, capabilities
from lab.backends.process import ProcessHandle, boot_id
from lab.backends.registry import backend_named
from lab.backends.state import Busy, with_lock_retry
from lab.errors import LabError
from lab.formatting import counted
from lab.gpu import NvmlError, read_host
from lab.log import LOG
from lab.placement.plan import Plan
from lab.strict_json import dump
from lab.text import short, visible
from lab.variables import LAB_GPU_RECORD
from lab.volume.files import atomic_writer, read_regular

DEFAULT: Final = Path("/var/tmp/lab-gpus")  # noqa: S108  (its files are checked, see above)

_MODE: Final = 0o1777
_MAX_BYTES: Final = 1 << 16
_MAX_PID: Final = 1 << 31
_MAX_UNIX: Final = 1 << 34  # the year 2514

Handover = Callable[[ProcessHandle], None]
"""Records another process as the one that represents the environment from now on."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An environment that holds GPUs.

    Attributes:
        project: The environment's name.
        backend: `local`, `compose` or `class`.
        where: Distinguishes environments of one name: the state directory (local, class) or the
            engine's id (compose).
        folder: The project's directory.
        gpus: Device ids; UUIDs if they are known.
        since_unix: Start of the reservation, in seconds since the epoch.
        process: The process that boots it; the supervisor of a local environment that is up.
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
        """The name of its file if this user booted it."""
        text = "\0".join((*self.key, str(uid)))
        return f"{self.project}.{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file of the record, with the user who owns it."""

    path: Path
    uid: int
    holder: Holder


def directory() -> Path:
    """Return the record's directory; it must be the same for all users of the host."""
    return Path(os.environ.get(LAB_GPU_RECORD) or DEFAULT)


def holder_of(plan: Plan, *, backend: str, where: str, folder: Path) -> Holder:
    """Return the holder for a plan that this process boots now."""
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
def hold_gpus(holder: Holder | None, *, share: bool) -> Iterator[Handover]:
    """Reserve an environment's GPUs before its boot. If the block fails, restore the record.

    Args:
        holder: The environment; without GPUs, or None, nothing is done.
        share: Whether other environments may hold the same GPUs.

    Yields:
        A function that records another process for the environment, because this one ends.

    Raises:
        LabError: Another environment holds one of the GPUs, or the record cannot be used.
    """
    if holder is None or not holder.gpus:
        yield lambda _process: None
        return
    path = directory() / holder.file_name(os.getuid())
    with _locked() as folder:
        if not share:
            _refuse_held(holder, folder)
        before = None
        with suppress(OSError, ValueError):
            before = read_regular(path, _MAX_BYTES).encode()
        _write(path, holder)
    try:
        yield lambda process: _write(path, replace(holder, process=process))
    except BaseException:
        with suppress(LabError, OSError), _locked():
            path.unlink() if before is None else _replace(path, before)
        raise


def release(backend: str, project: str, where: str) -> None:
    """Delete the entries of a removed environment. Entries of other users are ignored by now."""
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
        common = [gpu for gpu in entry.holder.gpus if gpu in holder.gpus]
        if not common or key == holder.key:
            continue
        alive = _is_alive(entry.holder)
        if alive is not False:
            raise _held_by(entry, common, holder, known=alive is not None)
        with suppress(OSError):  # another user's file cannot be removed; it is ignored
            entry.path.unlink()


def _entries(folder: Path) -> list[_Entry]:
    """Read all entries; `lab` writes them atomically and readable for all.

    Raises:
        LabError: The disk fails, so that a file may be an entry.
    """
    found, ignored = list[_Entry](), list[str]()
    for path in _files(folder):
        try:
            found.append(_read(path))
        except FileNotFoundError:
            continue
        except (PermissionError, BlockingIOError):  # its mode, or a lease of its owner
            ignored.append(f"{short(path.name)}: it is not readable")
        except ValueError as error:
            ignored.append(f"{short(path.name)}: {short(str(error))}")
        except OSError as error:
            raise LabError(
                f"the GPU record {visible(str(path))} cannot be read: {error.strerror}",
                "check the disk, or ignore the record with --share",
            ) from error
    if ignored:
        LOG.warning(
            f"warning: ignored {counted(len(ignored), 'file')} in the GPU record {folder} that"
            f" `lab` did not write: {ignored[0]}"
        )
    return found


def _held_by(entry: _Entry, gpus: Sequence[str], wanted: Holder, *, known: bool) -> LabError:
    holder = entry.holder
    more = f" (and {len(gpus) - 1} more)" if len(gpus) > 1 else ""
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(holder.since_unix))
    what = (
        f"GPU {short(gpus[0])}{more} is held by environment {holder.project!r}"
        f" ({short(holder.backend)}) of {_user(entry.uid)} since {since}"
    )
    down = capabilities(holder.backend).down.format(short(holder.project))
    hint = f"wait for `{down}`"
    if capabilities(wanted.backend).shares_gpus:
        hint += ", name other GPUs in the config (`gpus: [4, 5]`), or add --share"
    if not known:
        what += "; `lab` cannot check whether it is still up"
        hint += f"; if it no longer exists, remove {visible(str(entry.path))}"
    return LabError(what, hint)


def _is_alive(holder: Holder) -> bool | None:
    """Whether an environment is up or boots; None if that is unknown."""
    if holder.process.boot != boot_id():
        return False
    if _runs(holder.process):
        return True
    if holder.backend not in CAPABILITIES:  # of a later version of lab
        return None
    return backend_named(holder.backend).still_runs(holder.project, holder.where)


def _runs(process: ProcessHandle) -> bool:
    if process.alive():
        return True
    with suppress(ProcessLookupError):
        try:
            os.kill(process.pid, 0)
        except PermissionError:
            # The process belongs to another user. If /proc hides it, assume that it is the recorded
            # one: it may be a later one with the same id, but psutil would count it as ended.
            return not Path(f"/proc/{process.pid}/stat").exists()
    return False


def _uuids() -> dict[str, str]:
    """Index to UUID of this host's whole GPUs; empty if no driver answers."""
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
    """Lock the record.

    Raises:
        LabError: The record cannot be used, or another command locks it for too long.
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
        raise Busy("another command reads or writes the GPU record", "try again") from error


def _open(path: Path) -> int:
    """Open the record's directory; create it if it is missing.

    Raises:
        LabError: The directory has a wrong mode.
        OSError: It is a link, not a directory, or cannot be created.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        _create(path)
        descriptor = os.open(path, flags)
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode & ~stat.S_ISGID != _MODE:  # a directory inherits this bit from its parent
        os.close(descriptor)
        raise LabError(
            f"the GPU record {visible(str(path))} cannot be used: its mode is {mode:o}, not 1777",
            f"set {LAB_GPU_RECORD} to a path that does not exist yet: `lab` creates the directory",
        )
    return descriptor


def _create(path: Path) -> None:
    """Create the directory with its mode in one step: another command may open it at once."""
    before = os.umask(0)
    try:
        path.mkdir(_MODE)
        if sys.platform != "linux":  # mkdir does not set the sticky bit
            path.chmod(_MODE)
    except FileExistsError:
        pass  # another command has created it
    finally:
        os.umask(before)


def _unusable(path: Path, why: str) -> LabError:
    return LabError(
        f"the GPU record {visible(str(path))} cannot be used: {why}",
        f"create it with `sudo install -d -m 1777 {visible(str(path))}`, or set {LAB_GPU_RECORD}"
        " to another directory for all users",
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if not path.name.startswith("."))


def _read(path: Path) -> _Entry:
    """Read one file.

    Raises:
        FileNotFoundError: It does not exist any more.
        OSError: It cannot be read.
        ValueError: It is no entry, or its name does not match its environment and owner.
    """
    # Imported here: most commands hold no GPU.
    import msgspec  # noqa: PLC0415

    uid = path.lstat().st_uid
    text = read_regular(path, _MAX_BYTES)
    try:
        holder = msgspec.json.decode(text, type=Holder)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if not 0 < holder.process.pid < _MAX_PID:
        raise ValueError("its process id is out of range")
    if not 0 <= holder.since_unix < _MAX_UNIX:  # the clock may have been wrong
        raise ValueError("its time is out of range")
    if path.name != holder.file_name(uid):
        raise ValueError("its file name does not match its environment and owner")
    return _Entry(path, uid, holder)


def _write(path: Path, holder: Holder) -> None:
    _replace(path, (dump(asdict(holder), indent=2) + "\n").encode())


def _replace(path: Path, data: bytes) -> None:
    """Replace a file by a new one that all users may read; the old file is not modified.

    Raises:
        LabError: The file belongs to another user.
        OSError: It cannot be written.
    """
    # systemd removes old files in /var/tmp, except those with the sticky bit.
    sticky = stat.S_ISVTX if sys.platform == "linux" else 0
    try:
        with atomic_writer(path) as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o644 | sticky)
    except PermissionError as error:
        raise LabError(
            f"the GPU record {visible(str(path))} belongs to another user",
            f"remove it with `sudo rm {visible(str(path))}`",
        ) from error
