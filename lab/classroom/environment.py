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
from lab.classroom.containers import Containers, remains
from lab.classroom.gpu_check import check_class_gpus, check_seat_gpus
from lab.classroom.gradebook import gradebook
from lab.classroom.hub_api import HubApi, hub_api
from lab.classroom.planning import ClassPlan
from lab.classroom.queue.folder import end_environments, ledger_file, remove_environments
from lab.classroom.state import ClassDir, StoredClass, Tokens
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
        stored = folder.stored() if goes_on else stored
        containers = Containers(stored)
        try:
            if goes_on:
                LOG.info(f"class {folder.name}: going on where it ended")
                containers.stop()
            else:
                folder.create(stored)
                containers.create_networks()
            containers.create_storage()
            for seat in stored.plan.seats:
                folder.resetting(seat.name).unlink(missing_ok=True)
            _boot(folder, containers, goes_on=goes_on)
        except BaseException:
            with signals.ignore_signals():
                _undo(folder, containers, stored.plan, keep=goes_on)
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


def _undo(folder: ClassDir, containers: Containers, plan: ClassPlan, *, keep: bool) -> None:
    """Undo a boot that failed; the error of the boot is the one that is reported."""
    try:
        _stop_programs(folder, containers, plan)
        if not keep:
            _remove(folder, containers)
    except LabError as error:
        LOG.warning(f"warning: parts of the class {folder.name!r} are left: {error}")
        LOG.warning("remove them with `lab class down`")


def _boot(folder: ClassDir, containers: Containers, *, goes_on: bool) -> None:
    """Start the proxy, JupyterHub and the seats of a class; of one that goes on, those that can."""
    plan = folder.stored().plan
    gpus = (*plan.queue_gpus, *(gpu for seat in plan.seats for gpu in seat.gpus))
    with hold_gpus(_holder(folder, gpus), share=False) as hand_over:
        containers.start_proxy()
        hub = _start_hub(folder)
        hand_over(hub)
        api = hub_api(plan, folder.tokens().service)
        _wait_for_hub(api, hub, folder)
        LOG.info(f"class {folder.name}: JupyterHub is up")
        problems = _start_seats(api, folder, [seat.name for seat in plan.seats])
        if problems and (not goes_on or len(problems) == len(plan.seats)):
            raise LabError(problems[0])
        for problem in problems:  # files of one student must not end the class of the others
            LOG.warning(f"{problem}; the class goes on without it")


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


def read_class(folder: ClassDir) -> tuple[StoredClass, HubApi | None]:
    """Read a class, also if its files are damaged or of a newer version.

    Returns:
        The class, or what is left of it; and its JupyterHub, or None without its token.

    Raises:
        LabError: The class cannot be read, and the engine refuses.
    """
    stored = folder.readable(StoredClass)
    if stored is None:
        LOG.warning("going on with what the engine has of the class, without its GPUs and limits")
        stored = remains(folder.name)
    tokens = folder.readable(Tokens)
    return stored, hub_api(stored.plan, tokens.service) if tokens else None


def down(folder: ClassDir, archive: Path) -> None:
    """Stop a class, collect the work of every seat into one archive, then remove the class.

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
        stored, api = read_class(folder)
        containers, had = Containers(stored), {}
        try:
            with signals.as_interrupt(), _new_archive(archive) as target:
                had = containers.contents()
                had["queue environment"] = _stop_all(folder, containers, stored, api)
                _archive(folder, containers, stored, target)
        except BaseException:
            if had and not folder.is_up:
                what = f"class {folder.name}: its seats are stopped, and nothing is removed"
                LOG.warning(f"{what}; go on with `lab class up`, or try `lab class down` again")
            raise
        with signals.ignore_signals():
            _remove(folder, containers)
    parts = [counted(number, kind) for kind, number in had.items() if number]
    removed = ", ".join(parts) or "nothing"
    LOG.info(f"class {folder.name}: removed {removed}; the work of its seats is in {archive}")
    check_class_gpus(stored.plan)


def _stop_all(
    folder: ClassDir, containers: Containers, stored: StoredClass, api: HubApi | None
) -> int:
    """Stop all that writes to the seats' storage; return the number of the queue's environments.

    If the queue does not answer, its containers are removed without it: the class must end.
    """
    try:
        if folder.is_up:
            _end_runs(folder, stored, api, [seat.name for seat in stored.plan.seats])
    except LabError as error:
        LOG.warning(f"warning: {error}")
    return _stop_programs(folder, containers, stored.plan)


def _end_runs(
    folder: ClassDir, stored: StoredClass, api: HubApi | None, seats: Sequence[str]
) -> None:
    """Ask the queue to end the environments of seats; it is not reached without its files."""
    if stored.plan.run_networks and api is not None:
        end_environments(folder, seats)


def _archive(
    folder: ClassDir, containers: Containers, stored: StoredClass, target: zipfile.ZipFile
) -> None:
    """Write the work of all seats, the copies that resets made, and the gradebook."""
    seats = [seat.name for seat in stored.plan.seats]
    _collect(folder, containers, seats)
    for copy in sorted(folder.copies.glob("*.zip")):
        target.write(copy, f"resets/{copy.name}")
    for count, seat in enumerate(seats, 1):
        _save(containers, seat, target, seat)
        LOG.info(f"{seat}: collected ({count} of {len(seats)})")
    target.writestr("gradebook.csv", gradebook(target, seats, stored.lessons or LESSONS))


def reset(folder: ClassDir, seat: str) -> None:
    """Give a seat its first state again; a copy of the student's work is kept.

    Until it has its new storage and its GPUs are free, JupyterHub does not start it.

    Args:
        folder: The class.
        seat: The seat.

    Raises:
        InputError: There is no such class or seat.
        LabError: The queue, JupyterHub or the engine refuses; if the seat has its old files, it is
            started again. Or a process still uses a GPU of the seat; then it stays stopped.
        OSError: The copy cannot be written; the seat is started again.
    """
    with _locked(folder):
        stored, api = read_class(folder)
        check_seat(stored.plan, seat)
        containers = Containers(stored)
        _end_runs(folder, stored, api, [seat])  # first: it may refuse
        try:
            folder.resetting(seat).touch()
            _stop_seat(folder, containers, api, seat)
            _copy(folder, containers, seat)
            with signals.ignore_signals():  # a volume without labels would never be removed
                containers.replace_storage(seat)
        except BaseException:
            with signals.ignore_signals():
                _start_again(folder, containers, api, seat)
            raise
        check_seat_gpus(stored.plan, seat)
        folder.resetting(seat).unlink()
        if api is not None and (problems := _start_seats(api, folder, [seat])):
            raise LabError(problems[0])
    started = "" if api else "; it starts when its student signs in"
    LOG.info(f"{seat}: reset; `lab class down` collects the copy of its work{started}")


def _copy(folder: ClassDir, containers: Containers, seat: str) -> None:
    """Keep a copy of a seat's work, for the archive of the class."""
    if not containers.has_storage(seat):
        return  # an earlier reset has the copy, and then failed
    _collect(folder, containers, [seat])
    copy = folder.copies / f"{seat}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.zip"
    copy.parent.mkdir(exist_ok=True)
    with _new_archive(copy) as target:
        _save(containers, seat, target, copy.stem)


def _start_again(folder: ClassDir, containers: Containers, api: HubApi | None, seat: str) -> None:
    """Start a seat whose reset has failed, if it has its storage; else say that it has none."""
    try:
        if not containers.has_storage(seat):
            what = f"{seat} stays stopped without its storage; the copy of its work is kept"
            LOG.warning(f"{what}; run `lab class reset {seat}` again")
            return
        folder.resetting(seat).unlink(missing_ok=True)
        if api is not None:
            api.start(seat)
        LOG.warning(f"{seat}: not reset; it starts again with its own files")
    except LabError as error:
        LOG.warning(f"{seat}: not reset, and not started again: {error}")


def check_seat(plan: ClassPlan, seat: str) -> None:
    """Check that a class has a seat.

    Raises:
        InputError: It does not.
    """
    known = [each.name for each in plan.seats]
    if seat not in known:
        hint = f"{suggestion(seat, known)}see the seats with `lab class status`"
        what = f"no seat {seat!r}" if seat else "no seat is given"
        raise InputError(f"{what} in the class {plan.name!r}", hint)


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


def _collect(folder: ClassDir, containers: Containers, seats: Sequence[str]) -> None:
    """Collect the runs of the queue that seats have not collected, in their storage."""
    if ledger_file(folder).parent.exists():
        containers.collect(seats)


def _save(containers: Containers, seat: str, archive: zipfile.ZipFile, folder: str) -> None:
    left_out = containers.save(seat, archive, folder)
    if left_out:
        what = "links, special files, or beyond the limit of size"
        LOG.warning(f"{seat}: not in the archive: {left_out:,} ({what})")


def _stop_seat(folder: ClassDir, containers: Containers, api: HubApi | None, seat: str) -> None:
    """Stop a seat, and what it has in the queue by now; wait until its programs have ended."""
    until = time.monotonic() + _SEAT_S
    while api is not None:
        server = _servers(api).get(seat)
        if not server and containers.is_stopped(seat):
            break
        if time.monotonic() > until:
            raise LabError(f"{seat} has not stopped after {_SEAT_S:g} s", "see `docker ps`")
        if server and not server.get("pending"):  # else a start or a stop is under way
            api.stop(seat)
        time.sleep(_POLL_S)
    containers.stop(seat)  # a container that the engine could not start
    remove_environments(folder, [seat])


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


def _start_seats(api: HubApi, folder: ClassDir, seats: Sequence[str]) -> list[str]:
    """Start seats, and wait until JupyterLab answers in each.

    Returns:
        A line for each seat that could not be started, or was not ready in time.

    Raises:
        LabError: JupyterHub does not answer.
    """
    waiting, starting, problems = deque(seats), set[str](), list[str]()
    ready = 0
    until = time.monotonic() + _SEAT_S
    while waiting or starting:
        while waiting and len(starting) < _STARTS_AT_ONCE:
            starting.add(waiting[0])
            api.start(waiting.popleft())
        servers, is_late = _servers(api), time.monotonic() > until
        for seat in sorted(starting):
            server = servers.get(seat, {})
            if server.get("ready"):
                ready += 1
                LOG.info(f"{seat}: ready ({ready} of {len(seats)})")
            elif not server.get("pending"):
                problems.append(f"{seat} does not start: {_last_error(folder)}")
            elif is_late:
                problems.append(f"{seat} is not ready after {_SEAT_S:g} s")
            else:
                continue
            starting.remove(seat)
            until = time.monotonic() + _SEAT_S
        time.sleep(_POLL_S)
    return problems


def _servers(api: HubApi) -> dict[str, Mapping[str, Any]]:
    """Return what JupyterHub knows about the server of each seat; {}: it has none."""
    return {user["name"]: user["servers"].get("", {}) for user in api.users()}


def _last_error(folder: ClassDir) -> str:
    """Return the last error in JupyterHub's log; the lines before it are its traceback."""
    lines = folder.log.read_text(errors="replace").splitlines()
    errors = [line.partition("] ")[2] for line in lines if line.startswith("[E ")]
    return short(errors[-1]) if errors else "JupyterHub logged no error"


def _stop_programs(folder: ClassDir, containers: Containers, plan: ClassPlan) -> int:
    """Stop JupyterHub with the queue, and then the programs of the class.

    Returns:
        The number of environments that the queue had.
    """
    hub = folder.hub()
    if hub is not None:
        _stop(hub)  # first: it would start the seats again
    containers.stop()
    return remove_environments(folder, [seat.name for seat in plan.seats])


def _remove(folder: ClassDir, containers: Containers) -> None:
    """Remove a class that is stopped."""
    containers.remove()
    release(CLASS, folder.name, str(folder.path))
    shutil.rmtree(folder.path, ignore_errors=True)
    if folder.path.exists():
        raise LabError(
            f"{folder.path} is left, with the passwords of the class", f"run `rm -r {folder.path}`"
        )
    folder.lock.unlink(missing_ok=True)


def _stop(hub: ProcessHandle) -> None:
    hub.signal(signal.SIGTERM)
    until = time.monotonic() + _STOP_S
    while hub.alive():
        if time.monotonic() > until:
            hub.signal(signal.SIGKILL)
        time.sleep(_POLL_S)
