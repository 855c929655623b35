"""Boot and remove a class, and reset its seats."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Final

from lab.backends.gpu_record import Holder, hold_gpus, release
from lab.backends.names import CLASS
from lab.backends.state import locked
from lab.base import signals
from lab.base.errors import InputError, LabError
from lab.base.log import LOG
from lab.base.text import suggestion
from lab.cluster.gpu import Inventory, NvmlError, read_host
from lab.cluster.placement.place import held_in_use
from lab.teach.classroom.class_dir import ClassDir, StoredClass
from lab.teach.classroom.containers import Containers
from lab.teach.classroom.gradebook import as_csv, gradebook
from lab.teach.classroom.hub_api import (
    POLL_S,
    SEAT_S,
    HubApi,
    hub_api,
    start_hub,
    start_seats,
    stop_hub,
    wait_for_hub,
)
from lab.teach.classroom.names import COPIES
from lab.teach.classroom.planning import ClassPlan
from lab.teach.classroom.queue.host import end_environments, remove_environments
from lab.teach.classroom.student_work import new_archive

_GPU_WAIT_S: Final = 10.0  # the driver frees the memory of a killed process within a few seconds


def up(stored: StoredClass) -> None:
    """Boot a class: the proxy, JupyterHub, then every seat.

    If this fails, remove everything that it created. A class whose JupyterHub has ended, as after a
    restart of the host, continues with its stored plan and keeps its work. If only the proxy has
    ended, start only the proxy.

    Raises:
        InputError: The class is up already.
        LabError: A part could not be started, or another environment holds a GPU.
    """
    folder = ClassDir(stored.plan.name)
    with locked(folder.lock, f"the class {folder.name!r}"), signals.as_interrupt():
        goes_on = folder.path.exists()
        stored = folder.stored() if goes_on else stored
        containers = Containers(stored)
        if folder.is_up:
            _start_proxy_again(folder, containers, stored.plan)
            return
        try:
            if goes_on:
                LOG.info(f"class {folder.name}: continuing where it stopped")
                containers.stop()
            else:
                folder.create(stored)
                containers.create_networks()
            containers.create_storage()
            for seat in stored.plan.seats:
                folder.resetting(seat.name).unlink(missing_ok=True)
            _boot(folder, containers, stored.plan, goes_on=goes_on)
        except BaseException:
            with signals.ignore_signals():
                _undo(folder, containers, stored.plan, keep=goes_on)
            raise


def _start_proxy_again(folder: ClassDir, containers: Containers, plan: ClassPlan) -> None:
    """Start the proxy of a class that is up; everything in the seats keeps running.

    Raises:
        InputError: The proxy runs.
    """
    if containers.proxy_runs():
        raise InputError(
            f"the class {folder.name!r} is already up",
            "see it with `lab class status`, or remove it with `lab class down`",
        )
    LOG.info(f"class {folder.name}: starting its proxy, which had stopped")
    containers.start_proxy()
    containers.wait_for_proxy()
    hub_api(plan, folder.tokens().service).restore_routes()


def _undo(folder: ClassDir, containers: Containers, plan: ClassPlan, *, keep: bool) -> None:
    """Undo a failed boot; the error of the boot is the one to report."""
    try:
        _stop_programs(folder, containers, plan)
        if not keep:
            _remove(folder, containers)
    except LabError as error:
        LOG.warning(f"warning: parts of the class {folder.name!r} were not removed: {error}")
        LOG.warning("remove them with `lab class down`")


def _boot(folder: ClassDir, containers: Containers, plan: ClassPlan, *, goes_on: bool) -> None:
    """Start the proxy, JupyterHub and the seats; a class that continues needs only one seat."""
    holder = Holder(folder.name, CLASS, str(folder.path), tuple(plan.gpu_users))
    with hold_gpus(holder, share=False) as hold:
        containers.start_proxy()
        hub = start_hub(folder, hold)
        api = hub_api(plan, folder.tokens().service)
        wait_for_hub(api, hub, folder)
        containers.wait_for_proxy()  # a seat reaches JupyterHub through a relay
        LOG.info(f"class {folder.name}: JupyterHub is up")
        problems = start_seats(api, folder, [seat.name for seat in plan.seats])
        if problems and (not goes_on or len(problems) == len(plan.seats)):
            raise LabError(problems[0])
        for problem in problems:  # one student's files must not end the class of the others
            LOG.warning(f"{problem}; the class continues without it")


def down(folder: ClassDir, archive: Path) -> None:
    """Stop a class, collect the work of every seat into one archive, then remove the class.

    The archive also gets the copies that resets made, and the gradebook.

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
        containers, seats = Containers(stored), [seat.name for seat in stored.plan.seats]
        try:
            with signals.as_interrupt(), new_archive(archive) as target:
                _stop_all(folder, containers, stored.plan)
                for copy in sorted(folder.copies.glob("*.zip")):
                    target.write(copy, f"{COPIES}/{copy.name}")
                for count, seat in enumerate(seats, 1):
                    containers.save(seat, target, seat)
                    LOG.info(f"{seat}: collected ({count} of {len(seats)})")
                target.writestr("gradebook.csv", as_csv(gradebook(target)))
        except BaseException:
            if not folder.is_up:
                message = f"class {folder.name}: its seats are stopped, but nothing was removed"
                LOG.warning(
                    f"{message}; continue with `lab class up`, or try `lab class down` again"
                )
            raise
        with signals.ignore_signals():
            _remove(folder, containers)
    LOG.info(f"class {folder.name}: removed; the work of its seats is in {archive}")
    if left := programs_left(stored.plan.gpu_users):
        raise LabError(
            f"the class {folder.name!r} is removed, but {left}", "end that process with `kill PID`"
        )


def _stop_all(folder: ClassDir, containers: Containers, plan: ClassPlan) -> None:
    """Stop everything that writes to the seats' storage.

    If the queue does not answer, remove its containers without it: the class must end.
    """
    try:
        if folder.is_up:
            end_environments(folder, [seat.name for seat in plan.seats])
    except LabError as error:
        LOG.warning(f"warning: {error}")
    _stop_programs(folder, containers, plan)


def reset(folder: ClassDir, seat: str) -> None:
    """Reset a seat to its initial state; keep a copy of the student's work.

    JupyterHub does not start the seat until it has its new storage and its GPUs are free.

    Raises:
        InputError: There is no such class or seat.
        LabError: The queue, JupyterHub or the engine refuses; if the seat has its old files, it is
            started again. Or a process still uses a GPU of the seat; then it stays stopped.
        OSError: The copy cannot be written; the seat is started again.
    """
    with _locked(folder):
        stored = folder.stored()
        check_seat(stored.plan, seat)
        containers, api = Containers(stored), hub_api(stored.plan, folder.tokens().service)
        end_environments(folder, [seat])  # first: it may refuse
        try:
            folder.resetting(seat).touch()
            _stop_seat(folder, containers, api, seat)
            if containers.has_storage(seat):  # else an earlier reset made the copy and then failed
                _copy(folder, containers, seat)
            with signals.ignore_signals():  # a volume without labels would never be removed
                containers.replace_storage(seat)
        except BaseException:
            with signals.ignore_signals():
                _start_again(folder, containers, api, seat)
            raise
        _check_gpus(stored.plan, seat)
        folder.resetting(seat).unlink()
        if problems := start_seats(api, folder, [seat]):
            raise LabError(problems[0])
    LOG.info(f"{seat}: reset; `lab class down` collects the copy of its work")


def _check_gpus(plan: ClassPlan, seat: str) -> None:
    """Check that no process uses the GPUs of a stopped seat.

    Raises:
        LabError: A process uses one.
    """
    own = {gpu: users for gpu, users in plan.gpu_users.items() if users == [seat]}
    if left := programs_left(own):
        fix = f"end that process with `kill PID`, then run `lab class reset {seat}` again"
        raise LabError(f"{seat} stays stopped: {left}", fix)


def programs_left(users: Mapping[str, Sequence[str]]) -> str:
    """Return which processes still use GPUs after 10 s, as NVML reports them; "" for none.

    Warn once of the GPUs whose processes the driver does not report.

    Args:
        users: The former users of each GPU, by its UUID.
    """
    until = time.monotonic() + _GPU_WAIT_S
    while users:
        try:
            host = read_host()
        except NvmlError as error:
            host = Inventory("none", (), None, None, notices=(error.what,))
        lines = list(held_in_use(users, host))
        if not lines or time.monotonic() > until:
            known = {gpu.device_id for gpu in host.gpus if "processes" not in dict(gpu.unknown)}
            if unknown := [gpu for gpu in users if gpu not in known]:
                why = "; ".join(host.notices) or "the driver does not report their processes"
                LOG.warning(f"not checked: {', '.join(unknown)}: {why}")
            return ", ".join(lines)
        time.sleep(POLL_S)
    return ""


def _stop_seat(folder: ClassDir, containers: Containers, api: HubApi, seat: str) -> None:
    """Stop a seat, and what it has in the queue by now; wait until its programs have ended."""
    until = time.monotonic() + SEAT_S
    while (server := api.servers().get(seat)) or not containers.is_stopped(seat):
        if time.monotonic() > until:
            raise LabError(f"{seat} has not stopped after {SEAT_S:g} s", "see `docker ps`")
        if server and not server.get("pending"):  # else a start or a stop is under way
            api.stop(seat)
        time.sleep(POLL_S)
    containers.stop(seat)  # a container that the engine could not start
    remove_environments(folder, [seat])


def _copy(folder: ClassDir, containers: Containers, seat: str) -> None:
    """Keep a copy of a seat's work, for the archive of the class."""
    copy = folder.copies / f"{seat}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.zip"
    copy.parent.mkdir(exist_ok=True)
    with new_archive(copy) as target:
        containers.save(seat, target, copy.stem)


def _start_again(folder: ClassDir, containers: Containers, api: HubApi, seat: str) -> None:
    """Start a seat again after a failed reset; warn if it has no storage."""
    try:
        if not containers.has_storage(seat):
            message = f"{seat} stays stopped without its storage; the copy of its work is kept"
            LOG.warning(f"{message}; run `lab class reset {seat}` again")
            return
        folder.resetting(seat).unlink(missing_ok=True)
        api.start(seat)
        LOG.warning(f"{seat}: not reset; it starts again with its own files")
    except LabError as error:
        LOG.warning(f"{seat}: not reset, and not started again: {error}")


def check_seat(plan: ClassPlan, seat: str) -> None:
    """Check that a class has a seat.

    Raises:
        InputError: It does not.
    """
    known = [planned.name for planned in plan.seats]
    if seat not in known:
        hint = f"{suggestion(seat, known)}see the seats with `lab class status`"
        raise InputError(f"no seat {seat!r} in the class {plan.name!r}", hint)


def _locked(folder: ClassDir) -> AbstractContextManager[int]:
    """Lock a class that is up.

    Raises:
        InputError: There is no such class.
        Busy: Another command changes it.
    """
    if not folder.path.exists():
        raise InputError(f"no class {folder.name!r} is up", "start it with `lab class up`")
    return locked(folder.lock, f"the class {folder.name!r}")


def _stop_programs(folder: ClassDir, containers: Containers, plan: ClassPlan) -> None:
    """Stop JupyterHub with the queue, and then the programs of the class."""
    stop_hub(folder)  # first: it would start the seats again
    containers.stop()
    remove_environments(folder, [seat.name for seat in plan.seats])


def _remove(folder: ClassDir, containers: Containers) -> None:
    """Remove a class that is stopped."""
    containers.remove()
    release(CLASS, folder.name, str(folder.path))
    shutil.rmtree(folder.path, ignore_errors=True)
    if folder.path.exists():
        raise LabError(
            f"{folder.path} with the class's passwords was not removed",
            f"run `rm -r {folder.path}`",
        )
    folder.lock.unlink(missing_ok=True)
