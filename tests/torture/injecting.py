"""The faults themselves: from outside, by signals, by the engine, by the kernel."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from tests.support import disks
from tests.torture import processes
from tests.torture.case import PAUSE_S, Fault
from tests.torture.clock import Clock
from tests.torture.place import Place

if TYPE_CHECKING:
    from docker import DockerClient

_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Scene:
    """The objects that a fault may use.

    Attributes:
        place: The place of the run.
        helper: The client that follows it.
        deadline: The end of all waiting, on the monotonic clock.
        client: The engine, where the run is on containers.
        clock: The clock that may be changed, where the run was started with it.
        disk: Makes the disk of the run volume fail when it is written.
    """

    place: Place
    helper: subprocess.Popen[bytes]
    deadline: float
    client: DockerClient | None = None
    clock: Clock | None = None
    disk: Path | None = None

    def over(self) -> bool:
        """Whether no fault is possible any more: the command has ended, or it hangs."""
        return self.helper.poll() is not None or time.monotonic() > self.deadline

    def wait_until(self, ready: Callable[[], bool]) -> bool:
        """Wait for a condition; False where no fault is possible any more."""
        while not self.over():
            if ready():
                return True
            time.sleep(_POLL_S)
        return False


def hit(scene: Scene) -> float | None:
    """Wait for the moment and inject the fault; None where the run or its target ended before.

    Returns:
        Its time, in seconds since the epoch.
    """
    place, case = scene.place, scene.place.case
    if not scene.wait_until(lambda: place.home().info.get("submitted_unix") is not None):
        return None
    submitted = time.monotonic()
    if case.after_s is not None:
        due = submitted + case.after_s
        in_time = scene.wait_until(lambda: time.monotonic() >= due)
    else:
        in_time = scene.wait_until(lambda: place.home().global_step() >= (case.at_step or 0))
    if not in_time:
        return None
    return _FAULTS[case.fault](scene)


def _pause(scene: Scene) -> float | None:
    program = _program(scene)
    stopped = _signalled(program, signal.SIGSTOP)
    if program is not None and stopped is not None:
        time.sleep(PAUSE_S)
        processes.signalled(program, signal.SIGCONT)
    return stopped


def _agent(scene: Scene) -> float | None:
    case = scene.place.case
    if scene.client is not None:
        from docker.errors import APIError  # noqa: PLC0415  (only where there is an engine)

        now = time.time()
        try:
            scene.client.containers.get(f"{case.project}-{case.target}-1").kill()
        except APIError as error:
            if error.status_code not in {404, 409}:  # it was just being stopped or removed
                raise
            return None
        return now
    return _signalled(processes.agent(case.project, case.target), signal.SIGKILL)


def _kill(helper: subprocess.Popen[bytes]) -> None:
    helper.kill()
    helper.wait()


def _room(scene: Scene) -> float | None:
    now = time.time()
    filler = disks.fill(scene.place.state)
    is_over = scene.over()
    time.sleep(PAUSE_S)
    filler.unlink()
    return None if is_over else now


def _read_only(scene: Scene) -> float | None:
    disk = scene.disk
    assert disk is not None
    return _unless_over(scene, lambda: disk.write_text("harness\n"))


def _node_clock(scene: Scene) -> float | None:
    clock = scene.clock
    assert clock is not None
    return _unless_over(scene, lambda: clock.set(scene.place.case.amount_s))


def _unless_over(scene: Scene, do: Callable[[], object]) -> float | None:
    if scene.over():
        return None
    now = time.time()
    do()
    return now


def _signalled(process: psutil.Process | None, number: signal.Signals) -> float | None:
    now = time.time()
    return now if process is not None and processes.signalled(process, number) else None


def _program(scene: Scene) -> psutil.Process | None:
    """The target program, as soon as it runs; None where it has ended."""
    place, case = scene.place, scene.place.case
    run = place.run()
    assert run is not None  # it was submitted
    seen = False
    while not scene.over():
        found = processes.program(case.project, run.name, case.target)
        if found is not None and processes.runs(found):
            return found
        state = place.home().statuses.get(case.target, {}).get("state")
        if (found is None and seen) or state in {"succeeded", "failed", "lost", "cancelled"}:
            return None
        seen = found is not None
        time.sleep(_POLL_S)
    return None


_FAULTS: Final[dict[Fault, Callable[[Scene], float | None]]] = {
    Fault.KILL: lambda scene: _signalled(_program(scene), signal.SIGKILL),
    Fault.FREEZE: lambda scene: _signalled(_program(scene), signal.SIGSTOP),
    Fault.PAUSE: _pause,
    Fault.AGENT: _agent,
    Fault.HELPER: lambda scene: _unless_over(scene, lambda: _kill(scene.helper)),
    Fault.ROOM: _room,
    Fault.READ_ONLY: _read_only,
    Fault.NODE_CLOCK: _node_clock,
}
