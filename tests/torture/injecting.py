"""The faults themselves: from outside, by signals, by the engine, by the kernel."""

from __future__ import annotations

import errno
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.torture import processes
from tests.torture.case import COMPOSE, PAUSE_S, Case, Fault
from tests.torture.clock import Clock
from tests.torture.disks import FaultyDisk
from tests.torture.engine import OwnEngine
from tests.torture.place import Place
from tests.torture.processes import Process

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

_POLL_S: Final = 0.05
_MIB: Final = 2**20
_LARGE_BYTES: Final = 200 * _MIB
"""A program with TensorFlow holds more; before that the kernel might choose another process."""

_HOG: Final = """\
import time
held = []
for _ in range(12):
    held.append(bytearray(16 * 2**20))
    time.sleep(0.05)
time.sleep(1)
"""


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault that was injected.

    Attributes:
        unix: Its time, in seconds since the epoch.
        monotonic: Its time on the monotonic clock.
    """

    unix: float
    monotonic: float

    @classmethod
    def now(cls) -> Hit:
        """At this moment."""
        return cls(time.time(), time.monotonic())


@dataclass(frozen=True, slots=True)
class Scene:
    """The objects that a fault may use.

    Attributes:
        case: The run.
        place: Its place.
        run_id: Its id.
        helper: The client that follows it.
        deadline: The end of all waiting, on the monotonic clock.
        client: The engine, where the run is on containers.
        engine: The engine that may be restarted, where it runs on that one.
        clock: The clock that may be changed, where the run was started with it.
        disk: The disk that may fail, where the run volume is on one.
    """

    case: Case
    place: Place
    run_id: str
    helper: subprocess.Popen[bytes]
    deadline: float
    client: DockerClient | None = None
    engine: OwnEngine | None = None
    clock: Clock | None = None
    disk: FaultyDisk | None = None

    def over(self) -> bool:
        """Whether no fault is possible any more: the command has ended, or it hangs."""
        return self.helper.poll() is not None or time.monotonic() > self.deadline

    def container(self, service: str) -> Container:
        """One of the run's containers."""
        assert self.client is not None
        return self.client.containers.get(f"{self.case.project}-{service}-1")


def wait_for_moment(scene: Scene, submitted: float) -> bool:
    """Wait until the fault is due; False where the run ends before.

    Args:
        scene: The run.
        submitted: When it was submitted, on the monotonic clock.
    """
    when = scene.case.when
    while not scene.over():
        if when.after_s is not None and time.monotonic() - submitted >= when.after_s:
            return True
        if when.at_step is not None and scene.place.global_step() >= when.at_step:
            return True
        time.sleep(_POLL_S)
    return False


def inject(scene: Scene) -> Hit | None:
    """Inject the fault; None where its target had ended."""
    if scene.client is None:
        return _FAULTS[scene.case.fault](scene)
    from docker.errors import APIError  # noqa: PLC0415  (only where there is an engine)

    try:
        return _FAULTS[scene.case.fault](scene)
    except APIError as error:
        # Just then the containers were being stopped or removed.
        if error.status_code in {404, 409}:
            return None
        raise


def _kill(scene: Scene) -> Hit | None:
    return _signalled(scene, signal.SIGKILL)


def _freeze(scene: Scene) -> Hit | None:
    return _signalled(scene, signal.SIGSTOP)


def _pause(scene: Scene) -> Hit | None:
    program = _program(scene)
    if program is None:
        return None
    hit = Hit.now()
    try:
        if not program.signal(signal.SIGSTOP):
            return None
        time.sleep(PAUSE_S)
        program.signal(signal.SIGCONT)
    finally:
        program.close()
    return hit


def _agent(scene: Scene) -> Hit | None:
    if scene.case.backend == COMPOSE:
        container = scene.container(scene.case.target)
        if container.status != "running":
            return None
        hit = Hit.now()
        container.kill()
        return hit
    agent = processes.agent(scene.case.project, scene.case.target)
    if agent is None:
        return None
    hit = Hit.now()
    try:
        return hit if agent.signal(signal.SIGKILL) else None
    finally:
        agent.close()


def _anchor(scene: Scene) -> Hit | None:
    container = scene.container(scene.case.target)
    if container.status != "running":
        return None
    hit = Hit.now()
    container.restart(timeout=1)
    return hit


def _engine(scene: Scene) -> Hit | None:
    assert scene.engine is not None
    if scene.over():
        return None
    hit = Hit.now()
    scene.engine.restart()
    return hit


def _memory(scene: Scene) -> Hit | None:
    """Remove the container's free memory, and let another process of it ask for more.

    The kernel ends the largest process of the container, which is the program.
    """
    program = _program(scene, lambda found: processes.resident_bytes(found.pid) > _LARGE_BYTES)
    if program is None:
        return None
    container = scene.container(scene.case.target)
    hit = Hit.now()
    try:
        told: dict[str, Any] = container.stats(stream=False, one_shot=True)  # type: ignore[assignment]
        held = told["memory_stats"]["stats"]
        # The first name is of cgroup v1, the second of v2.
        limit = held.get("total_rss", held.get("anon", 0)) + 32 * _MIB
        container.update(mem_limit=limit, memswap_limit=limit)
        container.exec_run(["python", "-S", "-c", _HOG], detach=True)
        deadline = time.monotonic() + 5
        while program.runs() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        ended = not program.runs()
        # A program that is started again shall have room.
        container.update(mem_limit=64 * 2**30, memswap_limit=64 * 2**30)
    finally:
        program.close()
    return hit if ended else None


def _helper(scene: Scene) -> Hit | None:
    if scene.over():
        return None
    hit = Hit.now()
    scene.helper.kill()
    scene.helper.wait()
    return hit


def _disk(scene: Scene) -> Hit | None:
    hit = Hit.now()
    fill(scene.place.state / "ballast")
    return None if scene.over() else hit


def _room(scene: Scene) -> Hit | None:
    hit = _disk(scene)
    time.sleep(PAUSE_S)
    (scene.place.state / "ballast").unlink()
    return hit


def _read_only(scene: Scene) -> Hit | None:
    assert scene.disk is not None
    if scene.over():
        return None
    hit = Hit.now()
    scene.disk.fail()
    return hit


def fill(ballast: Path) -> None:
    """Write until the disk is full."""
    with ballast.open("wb", buffering=0) as file:
        for size in (_MIB, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def _clock(scene: Scene) -> Hit | None:
    assert scene.clock is not None
    program = _program(scene)
    if program is None:
        return None
    program.close()
    scene.clock.set(scene.case.amount_s)
    return Hit.now()


def _node_clock(scene: Scene) -> Hit | None:
    assert scene.clock is not None
    if scene.over():
        return None
    scene.clock.set(scene.case.amount_s)
    return Hit.now()


def _signalled(scene: Scene, number: signal.Signals) -> Hit | None:
    program = _program(scene)
    if program is None:
        return None
    hit = Hit.now()
    try:
        return hit if program.signal(number) else None
    finally:
        program.close()


def _program(
    scene: Scene, ready: Callable[[Process], bool] = lambda found: found.runs()
) -> Process | None:
    """The target program, as soon as it runs; None where it has ended."""
    seen = False
    while not scene.over():
        found = processes.program(scene.case.project, scene.run_id, scene.case.target)
        if found is not None and ready(found):
            return found
        if found is not None:
            seen = True
            found.close()
        if found is None and seen:
            return None
        status = scene.place.status(scene.case.target)
        if status.get("state") in {"succeeded", "failed", "lost", "cancelled"}:
            return None
        time.sleep(_POLL_S)
    return None


_FAULTS: Final[dict[Fault, Callable[[Scene], Hit | None]]] = {
    Fault.KILL: _kill,
    Fault.FREEZE: _freeze,
    Fault.PAUSE: _pause,
    Fault.AGENT: _agent,
    Fault.ANCHOR: _anchor,
    Fault.ENGINE: _engine,
    Fault.MEMORY: _memory,
    Fault.HELPER: _helper,
    Fault.DISK: _disk,
    Fault.ROOM: _room,
    Fault.READ_ONLY: _read_only,
    Fault.CLOCK: _clock,
    Fault.NODE_CLOCK: _node_clock,
}
