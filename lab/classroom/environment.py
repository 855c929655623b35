"""Boot and remove a class."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from lab import signals
from lab.backends.gpu_record import Holder, hold_gpus, release
from lab.backends.names import CLASS
from lab.backends.process import ProcessHandle
from lab.backends.state import locked, state_directory
from lab.classroom.config import LESSONS
from lab.classroom.containers import Containers
from lab.classroom.gpu_check import check_class_gpus, check_seat_gpus
from lab.classroom.gradebook import gradebook
from lab.classroom.hub_api import HubApi, hub_api
from lab.classroom.queue.folder import end_all, end_environments, remove_environments
from lab.classroom.state import ClassDir, StoredClass
from lab.errors import InputError, LabError
from lab.formatting import counted
from lab.log import LOG
from lab.text import short, suggestion
from lab.variables import LAB_CLASS, LAB_STATE

_HUB_CONFIG: Final = Path(__file__).with_name("hub_config.py")
_HUB_S: Final = 60.0
_SEAT_S: Final = 180.0
_STARTS_AT_ONCE: Final = 4  # a start is mostly CPU time
_STOP_S: Final = 20.0
_POLL_S: Final = 0.2
_LAST_LINES: Final = 3


def up(stored: StoredClass) -> None:
    """Boot a class: the proxy, JupyterHub, then every seat.

    If this fails, everything that was created is removed. A class whose JupyterHub has ended, for
    example because the host was restarted, goes on with its own plan; its work is never removed.

    Args:
        stored: The class.

    Raises:
        InputError: The class is up already.
        LabError: A part could not be started, or another environment holds a GPU.
    """
    folder = ClassDir(stored.plan.name)
    with locked(folder.lock, f"the class {folder.name!r}"), signals.as_interrupt():
        check_not_up(folder)
        goes_on = folder.path.exists()
        containers = Containers(folder.stored() if goes_on else stored)
        try:
            if goes_on:
                LOG.info(f"class {folder.name}: going on where it ended")
                containers.stop()
                containers.attach_storage()
            else:
                folder.create(stored)
                containers.create()
            _boot(folder, containers)
        except BaseException:
            with signals.ignore_signals():
                _undo(folder, containers, keep=goes_on)
            raise


def check_not_up(folder: ClassDir) -> None:
    """Check that a class is not up.

    Raises:
        InputError: It is.
    """
    if folder.is_up:
        raise InputError(
            f"the class {folder.name!r} is up already",
            "see it with `lab class status`, or remove it with `lab class down`",
        )


def _undo(folder: ClassDir, containers: Containers, *, keep: bool) -> None:
    """Undo a boot that failed; the error of the boot is the one that is reported."""
    try:
        (_stop_programs if keep else _remove)(folder, containers)
    except LabError as error:
        LOG.warning(f"warning: parts of the class {folder.name!r} are left: {error}")
        LOG.warning("remove them with `lab class down`")


def _boot(folder: ClassDir, containers: Containers) -> None:
    """Start the proxy, JupyterHub and the seats of a class."""
    plan = folder.stored().plan
    gpus = (*plan.queue_gpus, *(gpu for seat in plan.seats for gpu in seat.gpus))
    with hold_gpus(_holder(folder, gpus), share=False) as hand_over:
        containers.start_proxy()
        hub = _start_hub(folder)
        hand_over(hub)
        api = hub_api(folder)
        _wait_for_hub(api, hub, folder)
        LOG.info(f"class {folder.name}: JupyterHub is up")
        _start_seats(api, folder, [seat.name for seat in plan.seats])


def _holder(folder: ClassDir, gpus: Iterable[str]) -> Holder:
    return Holder(
        project=folder.name,
        backend=CLASS,
        where=str(folder.path),
        folder=str(folder.path),
        gpus=tuple(dict.fromkeys(gpus)),
        since_unix=time.time(),
        process=ProcessHandle.of(os.getpid()),
    )


def down(folder: ClassDir, archive: Path) -> None:
    """Collect the work of every seat into one archive, then remove the class.

    Args:
        folder: The class.
        archive: The archive, a new zip file.

    Raises:
        InputError: There is no such class, or the archive exists.
        LabError: The engine refuses; if the work cannot be collected, nothing is removed. Or the
            class is removed, and a process still uses one of its GPUs.
        OSError: The archive cannot be written; nothing is removed.
    """
    with _locked(folder):
        stored = folder.stored()
        containers, seats = Containers(stored), stored.plan.seats
        with signals.as_interrupt(), _new_archive(archive) as target:
            end_all(folder)
            _collect(containers, stored, [seat.name for seat in seats])
            _add_earlier(folder, target)
            for count, seat in enumerate(seats, 1):
                _save(containers, seat.name, target, seat.name)
                LOG.info(f"{seat.name}: collected ({count} of {len(seats)})")
            names = [seat.name for seat in seats]
            target.writestr("gradebook.csv", gradebook(target, names, stored.lessons or LESSONS))
        with signals.ignore_signals():
            removed = _remove(folder, containers)
    LOG.info(f"class {folder.name}: removed {removed}; the work of its seats is in {archive}")
    check_class_gpus(stored.plan)


def reset(folder: ClassDir, seat: str) -> None:
    """Give a seat its first state again; a copy of the student's work is kept.

    Args:
        folder: The class.
        seat: The seat.

    Raises:
        InputError: There is no such class or seat.
        LabError: JupyterHub or the engine refuses, or a process still uses a GPU of the seat; then
            the seat is not started.
        OSError: The copy cannot be written; nothing is removed.
    """
    with _locked(folder):
        check_seat(folder, seat)
        stored = folder.stored()
        containers, api = Containers(stored), hub_api(folder)
        end_environments(folder, [seat])  # first: it may refuse
        _stop_seat(api, containers, seat)
        _collect(containers, stored, [seat])
        copy = folder.copies / f"{seat}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.zip"
        copy.parent.mkdir(exist_ok=True)
        with _new_archive(copy) as target:
            _save(containers, seat, target, copy.stem)
        with signals.ignore_signals():  # a volume without labels would never be removed
            containers.replace_storage(seat)
        check_seat_gpus(stored.plan, seat)
        _start_seats(api, folder, [seat])
    LOG.info(f"{seat}: reset; `lab class down` collects the copy of its work")


def check_seat(folder: ClassDir, seat: str) -> None:
    """Check that a class has a seat.

    Raises:
        InputError: It does not.
        LabError: The class cannot be read.
    """
    known = [each.name for each in folder.stored().plan.seats]
    if seat not in known:
        hint = f"{suggestion(seat, known)}see the seats with `lab class status`"
        what = f"no seat {seat!r}" if seat else "no seat is given"
        raise InputError(f"{what} in the class {folder.name!r}", hint)


def _locked(folder: ClassDir) -> AbstractContextManager[int]:
    """Lock a class that is up.

    Raises:
        InputError: There is no such class.
        Busy: Another command changes it.
    """
    if not folder.path.exists():
        raise InputError(f"no class {folder.name!r} is up", "start it with `lab class up`")
    return locked(folder.lock, f"the class {folder.name!r}")


@contextmanager
def _new_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Write a new archive; if the block raises, remove it.

    Raises:
        InputError: The file exists.
    """
    try:
        file = path.open("x+b")
    except FileExistsError as error:
        raise InputError(f"{path} exists already", "choose another file") from error
    try:
        with file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            yield archive
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _add_earlier(folder: ClassDir, archive: zipfile.ZipFile) -> None:
    """Add the copies that resets made."""
    for copy in sorted(folder.copies.glob("*.zip")):
        archive.write(copy, f"resets/{copy.name}")


def _collect(containers: Containers, stored: StoredClass, seats: Sequence[str]) -> None:
    """Collect the runs of the queue that seats have not collected, in their storage."""
    if stored.plan.run_networks:
        containers.collect(seats)


def _save(containers: Containers, seat: str, archive: zipfile.ZipFile, folder: str) -> None:
    left_out = containers.save(seat, archive, folder)
    if left_out:
        what = "links, special files, or beyond the limit of size"
        LOG.warning(f"{seat}: not in the archive: {left_out:,} ({what})")


def _stop_seat(api: HubApi, containers: Containers, seat: str) -> None:
    """Stop a seat, and wait until its programs have ended, also for JupyterHub."""
    api.stop(seat)
    until = time.monotonic() + _SEAT_S
    while not containers.is_stopped(seat) or _servers(api).get(seat):
        if time.monotonic() > until:
            raise LabError(f"{seat} has not stopped after {_SEAT_S:g} s", "see `docker ps`")
        time.sleep(_POLL_S)
    containers.stop(seat)  # a container that the engine could not start


def _start_hub(folder: ClassDir) -> ProcessHandle:
    """Start JupyterHub in a session of its own, so that it outlives this command."""
    # Without interrupts: a JupyterHub that is not recorded would never be stopped.
    with folder.log.open("ab") as log, signals.block_interrupts():
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "--config", str(_HUB_CONFIG)],
            cwd=folder.path,
            # An absolute path: JupyterHub has another current directory.
            env={
                **os.environ,
                LAB_CLASS: folder.name,
                LAB_STATE: str(state_directory()),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_unblock_signals,  # noqa: PLW1509  (it only sets the mask)
        )
        try:
            hub = ProcessHandle.of(process.pid)
            folder.write_hub(hub)
        except BaseException:
            process.kill()
            raise
    return hub


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _wait_for_hub(api: HubApi, hub: ProcessHandle, folder: ClassDir) -> None:
    until = time.monotonic() + _HUB_S
    while not api.answers():
        if not hub.alive() or time.monotonic() > until:
            ended = "ended" if not hub.alive() else f"is not ready after {_HUB_S:g} s"
            raise LabError(f"JupyterHub {ended}: {_last_lines(folder)}")
        time.sleep(_POLL_S)


def _last_lines(folder: ClassDir) -> str:
    lines = folder.log.read_text(errors="replace").splitlines()
    return short(" ".join(line.strip() for line in lines[-_LAST_LINES:]))


def _start_seats(api: HubApi, folder: ClassDir, seats: Sequence[str]) -> None:
    """Start seats, and wait until JupyterLab answers in each.

    Raises:
        LabError: A seat could not be started, or was not ready in time.
    """
    waiting, starting = deque(seats), set[str]()
    ready = 0
    until = time.monotonic() + _SEAT_S
    while waiting or starting:
        while waiting and len(starting) < _STARTS_AT_ONCE:
            starting.add(waiting[0])
            api.start(waiting.popleft())
        servers = _servers(api)
        for seat in sorted(starting):
            server = servers.get(seat, {})
            if server.get("ready"):
                starting.remove(seat)
                ready += 1
                until = time.monotonic() + _SEAT_S
                LOG.info(f"{seat}: ready ({ready} of {len(seats)})")
            elif not server.get("pending"):
                raise LabError(f"{seat} does not start: {_last_error(folder)}")
        if starting and time.monotonic() > until:
            raise LabError(f"not ready after {_SEAT_S:g} s: {', '.join(sorted(starting))}")
        time.sleep(_POLL_S)


def _servers(api: HubApi) -> dict[str, Mapping[str, Any]]:
    """Return what JupyterHub knows about the server of each seat; {}: it has none."""
    return {user["name"]: user["servers"].get("", {}) for user in api.users()}


def _last_error(folder: ClassDir) -> str:
    """Return the last error in JupyterHub's log; the lines before it are its traceback."""
    lines = folder.log.read_text(errors="replace").splitlines()
    errors = [line.partition("] ")[2] for line in lines if line.startswith("[E ")]
    return short(errors[-1]) if errors else "JupyterHub logged no error"


def _stop_programs(folder: ClassDir, containers: Containers) -> None:
    """Stop JupyterHub, and then the programs of the class."""
    hub = folder.hub()
    if hub is not None:
        _stop(hub)
    containers.stop()


def _remove(folder: ClassDir, containers: Containers) -> str:
    """Remove a class; return what it had: `4 containers, 3 networks`."""
    had = dict(containers.contents())
    _stop_programs(folder, containers)  # first: JupyterHub would start the seats again
    if environments := remove_environments(folder):
        had["queue environment"] = environments
    containers.remove()
    release(CLASS, folder.name, str(folder.path))
    shutil.rmtree(folder.path, ignore_errors=True)
    if folder.path.exists():
        raise LabError(
            f"{folder.path} is left, with the passwords of the class", f"run `rm -r {folder.path}`"
        )
    folder.lock.unlink(missing_ok=True)
    return ", ".join(counted(number, kind) for kind, number in had.items()) or "nothing"


def _stop(hub: ProcessHandle) -> None:
    hub.signal(signal.SIGTERM)
    until = time.monotonic() + _STOP_S
    while hub.alive():
        if time.monotonic() > until:
            hub.signal(signal.SIGKILL)
        time.sleep(_POLL_S)
