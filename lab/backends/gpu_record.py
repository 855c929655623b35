"""Which environment holds which GPUs of this host, for all of its users.

A directory like `/tmp` has a file for each environment, with its GPUs. The file counts while the
process that owns the environment locks it (the command that boots it, a local supervisor, the
JupyterHub of a class), or while the environment's containers run. The kernel releases a lock when
the process ends. Every user can add files, so a file that isn't an entry is reported and ignored.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Final

from lab.backends.names import COMPOSE, capabilities, known
from lab.backends.state import Busy, with_lock_retry
from lab.base.errors import LabError
from lab.base.files import atomic_writer
from lab.base.log import LOG
from lab.base.strict_json import dump
from lab.base.threads import with_timeout
from lab.base.variables import LAB_GPU_RECORD
from lab.cluster.gpu import host_gpus
from lab.cluster.placement.plan import Plan
from lab.protocol.volume.files import open_regular, read_regular

DEFAULT: Final = Path("/var/tmp/lab-gpus")  # noqa: S108  (its files are checked, see above)

_DIRECTORY_MODE: Final = 0o1777
_FILE_MODE: Final = 0o1644
"""Readable for all; systemd does not clean up files with the sticky bit."""

_MAX_BYTES: Final = 1 << 16
_UP: Final = frozenset({"running", "paused", "restarting"})
_ENGINE_S: Final = 5.0
"""Seconds that the engine has to report whether the containers of an entry run."""

Handover = int | None
"""The descriptor with the lock of an entry, which a child inherits; None without GPUs."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An environment that holds GPUs.

    Attributes:
        project: The environment's name.
        backend: `local`, `compose` or `class`.
        where: Distinguishes environments of one name: the state directory (local, class) or the
            engine's id (compose).
        gpus: Device ids; UUIDs if they are known.
    """

    project: str
    backend: str
    where: str
    gpus: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the environment: two users of one engine may boot the same one in turn."""
        return self.backend, self.project, self.where

    def path(self) -> Path:
        """Return this user's file for the environment."""
        text = "\0".join((*self.key, str(os.getuid())))
        return directory() / f"{self.project}.{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file of the record: who wrote it and when, and whether a process locks it."""

    path: Path
    holder: Holder
    uid: int
    since_unix: float
    locked: bool

    def is_held(self) -> bool | None:
        """Whether the environment exists; None if its engine cannot be asked."""
        if self.locked:
            return True
        if self.holder.backend == COMPOSE:
            return _has_containers(self.holder.project, self.holder.where)
        # Unknown if it is of a later version of lab.
        return False if self.holder.backend in known() else None


def directory() -> Path:
    """Return the record's directory; it must be the same for all users of the host."""
    return Path(os.environ.get(LAB_GPU_RECORD) or DEFAULT)


def holder_of(plan: Plan, *, backend: str, where: str) -> Holder:
    """Return the holder for a plan."""
    gpus = dict.fromkeys(gpu for task in plan.tasks for gpu in task.gpus)
    known = host_gpus() if gpus and plan.mode == "index" else ()
    uuids = {str(gpu.index): gpu.device_id for gpu in known if not gpu.is_slice}
    return Holder(plan.name, backend, where, tuple(uuids.get(gpu, gpu) for gpu in gpus))


@contextmanager
def hold_gpus(holder: Holder | None, *, share: bool) -> Iterator[Handover]:
    """Hold an environment's GPUs during its boot. If the block fails, restore the record.

    Args:
        holder: The environment; without GPUs, or None, nothing is done.
        share: Whether other environments may hold the same GPUs.

    Yields:
        The descriptor with the lock: a process that inherits it holds the GPUs until it ends.

    Raises:
        LabError: Another environment holds one of the GPUs, or the record cannot be used.
    """
    if holder is None or not holder.gpus:
        yield None
        return
    path = holder.path()
    with _locked() as folder:
        if not share:
            _refuse_held(holder, folder)
        before = None
        with suppress(OSError, ValueError):
            before = read_regular(path, _MAX_BYTES)
        lock = _write(path, dump(asdict(holder), indent=2) + "\n")
    try:
        yield lock
    except BaseException:
        with suppress(LabError, OSError), _locked():
            path.unlink() if before is None else os.close(_write(path, before))
        raise
    finally:
        os.close(lock)


def release(backend: str, project: str, where: str) -> None:
    """Delete this user's entry of a removed environment; other users' entries are stale then."""
    with suppress(OSError):
        Holder(project, backend, where).path().unlink()


def _refuse_held(holder: Holder, folder: Path) -> None:
    entries = sorted(_entries(folder), key=lambda entry: entry.since_unix)
    newest = {entry.holder.key: entry for entry in entries}
    for key, entry in newest.items():
        common = [gpu for gpu in entry.holder.gpus if gpu in holder.gpus]
        if not common or key == holder.key:
            continue
        held = entry.is_held()
        if held is not False:
            raise _held_by(entry, common, holder, known=held is not None)
        with suppress(OSError):  # another user's file cannot be removed; it is ignored
            entry.path.unlink()


def _entries(folder: Path) -> Iterator[_Entry]:
    for path in sorted(folder.glob("*.json")):
        try:
            with open_regular(path) as file:
                yield _read(path, file)
        except FileNotFoundError:
            continue
        except (PermissionError, ValueError) as error:
            LOG.warning(
                f"warning: ignored {path}, which is not an entry of the GPU record: {error}"
            )


def _read(path: Path, file: BinaryIO) -> _Entry:
    """Read one file.

    Raises:
        ValueError: It is not an entry.
    """
    # Imported here: most commands hold no GPU.
    import msgspec  # noqa: PLC0415

    try:
        holder = msgspec.json.decode(file.read(_MAX_BYTES), type=Holder)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error
    status = os.fstat(file.fileno())
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        locked = True
    else:
        locked = False
    return _Entry(path, holder, status.st_uid, status.st_mtime, locked)


def _has_containers(project: str, engine_id: str) -> bool | None:
    """Whether containers of a project run; None if another engine or none answers."""
    from lab.backends.engine import client, containers  # noqa: PLC0415  (most commands ask no engine)

    def check() -> bool | None:
        engine = client.Engine()
        if engine.id() != engine_id:
            return None
        found = engine.containers(f"{containers.PROJECT}={project}")
        return not _UP.isdisjoint(container.status for container in found)

    try:
        return with_timeout(_ENGINE_S, check)
    except (LabError, TimeoutError):
        return None


def _held_by(entry: _Entry, gpus: list[str], requester: Holder, *, known: bool) -> LabError:
    holder = entry.holder
    more = f" (and {len(gpus) - 1} more)" if len(gpus) > 1 else ""
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.since_unix))
    problem = (
        f"GPU {gpus[0]}{more} is held by environment {holder.project!r}"
        f" ({holder.backend}) of {_user(entry.uid)} since {since}"
    )
    down = capabilities(holder.backend).down.format(holder.project)
    hint = f"wait for `{down}`"
    if capabilities(requester.backend).shares_gpus:
        hint += ", name other GPUs in the config (`gpus: [4, 5]`), or add --share"
    if not known:
        problem += "; `lab` cannot check whether it is still up"
        hint += f"; if it no longer exists, remove {entry.path}"
    return LabError(problem, hint)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


@contextmanager
def _locked() -> Iterator[Path]:
    """Lock the record; create its directory if it is missing.

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
        raise LabError(
            f"the GPU record {path} cannot be used: {(error.strerror or str(error)).lower()}",
            f"create it with `sudo install -d -m 1777 {path}`, or set {LAB_GPU_RECORD} to another"
            " directory for all users",
        ) from error


def _open(path: Path) -> int:
    before = os.umask(0)
    try:
        with suppress(FileExistsError):
            path.mkdir(_DIRECTORY_MODE)
    finally:
        os.umask(before)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Busy("another command is using the GPU record", "try again") from error


def _write(path: Path, text: str) -> int:
    """Replace an entry by a new file; return its descriptor, which locks it."""
    with atomic_writer(path) as file:
        file.write(text.encode())
        os.fchmod(file.fileno(), _FILE_MODE)
        fcntl.flock(file, fcntl.LOCK_EX)
        return os.dup(file.fileno())
