"""The faults themselves: from outside, by signals, by the engine, by the kernel."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from tests.support import disks
from tests.torture import clock, processes
from tests.torture.case import COMPOSE, PAUSE_S, Fault
from tests.torture.place import Place

_POLL_S: Final = 0.05
_ENDED: Final = {"succeeded", "failed", "lost", "cancelled"}

Strike = Callable[[], object]
"""What injects a fault that was prepared before the start of the run."""


def prepare(place: Place) -> tuple[Mapping[str, str], Strike | None]:
    """Prepare the disk or the clock of a fault: further variables of the run, and the strike."""
    case = place.case
    if case.fault is Fault.NODE_CLOCK:
        node_clock = clock.make(place.folder, case.target)
        return node_clock.environ, lambda: node_clock.set(case.amount_s)
    if case.fault is Fault.ROOM:
        _mount("-t", "tmpfs", "-o", "size=64m", "lab-torture", str(place.state))
    if case.fault is Fault.READ_ONLY:
        return {}, _faulty_disk(place)
    return {}, None


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _faulty_disk(place: Place) -> Strike:
    """Put the run volume on an ext4 file system that becomes read-only at its first fault."""
    image, state = str(place.folder / "disk"), str(place.state)
    subprocess.run(["mkfs.ext4", "-q", image, "256M"], check=True, stdout=subprocess.DEVNULL)
    _mount("-o", "loop,errors=remount-ro", image, state)
    (place.state / "lost+found").rmdir()
    (device,) = [
        disk.device for disk in psutil.disk_partitions(all=True) if disk.mountpoint == state
    ]
    trigger = Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error")
    return lambda: trigger.write_text("harness\n")


@dataclass(frozen=True, slots=True)
class Scene:
    """The objects that a fault may use."""

    place: Place
    client: subprocess.Popen[bytes]
    deadline: float
    strike: Strike | None

    def over(self) -> bool:
        """Whether no fault is possible any more: the client has ended, or it hangs."""
        return self.client.poll() is not None or time.monotonic() > self.deadline

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait for a condition, or until no fault is possible any more."""
        while not self.over() and not ready():
            time.sleep(_POLL_S)


def hit(scene: Scene) -> float | None:
    """Wait for the moment and inject the fault.

    Returns:
        Its time, in seconds since the epoch; None where the run or its target ended before.
    """
    place, case = scene.place, scene.place.case
    scene.wait_until(lambda: place.home().info.get("submitted_unix") is not None)
    submitted = time.monotonic()
    if case.after_s is not None:
        due = submitted + case.after_s
        scene.wait_until(lambda: time.monotonic() >= due)
    else:
        scene.wait_until(lambda: place.home().global_step() >= (case.at_step or 0))
    of_program = case.fault in {Fault.KILL, Fault.FREEZE, Fault.PAUSE}
    program = _program(scene) if of_program else None
    now = time.time()
    return now if not scene.over() and _inject(scene, program) else None


def _program(scene: Scene) -> psutil.Process | None:
    """The target program, as soon as it runs; None where its task has ended."""
    place, case = scene.place, scene.place.case
    while not scene.over():
        run = place.run()
        assert run is not None  # it was submitted
        if program := processes.program(case.project, run.name, case.target):
            return program
        if place.home().statuses.get(case.target, {}).get("state") in _ENDED:
            return None
        time.sleep(_POLL_S)
    return None


def _inject(scene: Scene, program: psutil.Process | None) -> bool:
    match scene.place.case.fault:
        case Fault.KILL:
            return processes.signalled(program, signal.SIGKILL)
        case Fault.FREEZE:
            return processes.signalled(program, signal.SIGSTOP)
        case Fault.PAUSE:
            return _pause(program)
        case Fault.AGENT:
            return _kill_agent(scene.place)
        case Fault.HELPER:
            scene.client.kill()
            scene.client.wait()
        case Fault.ROOM:
            filler = disks.fill(scene.place.state)
            time.sleep(PAUSE_S)
            filler.unlink()
        case _:
            assert scene.strike is not None
            scene.strike()
    return True


def _pause(program: psutil.Process | None) -> bool:
    stopped = processes.signalled(program, signal.SIGSTOP)
    if stopped:
        time.sleep(PAUSE_S)
        processes.signalled(program, signal.SIGCONT)
    return stopped


def _kill_agent(place: Place) -> bool:
    case = place.case
    if case.backend != COMPOSE:
        return processes.signalled(processes.agent(case.project, case.target), signal.SIGKILL)
    command = ["docker", "kill", f"{case.project}-{case.target}-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    ended = "No such container" in done.stderr or "is not running" in done.stderr
    assert done.returncode == 0 or ended, done.stderr
    return done.returncode == 0
