"""One run from its command to the observed result."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.torture import clock, disks, injecting, leftovers
from tests.torture.case import COMPOSE, UNTIMED, Case, Fault
from tests.torture.expected import (
    STALL_S,
    may_succeed,
    patience_s,
)
from tests.torture.injecting import Scene
from tests.torture.judging import GOOD, Judgement, Seen, judge
from tests.torture.place import Place, ended

if TYPE_CHECKING:
    from docker import DockerClient

HARD_S: Final = 300.0
"""A run that takes longer after the start of its command hangs, in seconds."""

_AFTER_S: Final = 60.0
"""So much longer than allowed a run may take after its fault before it is ended by force."""

_COMMAND_S: Final = 120.0


class RefusedError(Exception):
    """lab refused the command: a defect of the harness, or of lab; with the output."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The shared parts of the runs of a session.

    Attributes:
        variables: The variables by which commands find the engine.
        client: That engine, where there is one.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    client: DockerClient | None = None

    @classmethod
    @contextmanager
    def of(cls, environ: Mapping[str, str]) -> Iterator[Tools]:
        """The engine that these variables name."""
        import docker  # noqa: PLC0415  (only where there is an engine)

        names = ("DOCKER_HOST", "DOCKER_CONFIG", "PATH")
        client = docker.from_env(environment=dict(environ))
        yield cls({name: environ[name] for name in names if name in environ}, client)
        client.close()


def lacks(backend: str, fault: Fault) -> str:
    """Why such a run is not possible here; "" where it is."""
    is_root = os.geteuid() == 0
    if fault in {Fault.ROOM, Fault.READ_ONLY} and not is_root:
        return "only root may mount a small disk"
    if fault is Fault.NODE_CLOCK and not (shutil.which("cc") or shutil.which("gcc")):
        return "no C compiler for the clock"
    if backend == COMPOSE and not is_root:
        return "only root sees the variables of programs in containers"
    return ""


def words(case: Case) -> list[str]:
    """The command line of a case, after `lab`."""
    found = ["run", case.experiment, "--backend", case.backend, "--gpus", "none", "--json"]
    found += ["--on-failure", case.policy.value, "--seed", str(case.seed)]
    found += ["--global_steps", str(case.steps)]
    found += ["--record_every", str(max(1, min(20, case.steps // 20)))]
    if case.fault is Fault.FREEZE:
        found += ["--stall", f"{STALL_S:g}s"]
    if case.fault is Fault.LATE:
        found += ["--start", f"{case.target}: {case.amount_s:g}s"]
    return found


@contextmanager
def ran(case: Case, tools: Tools) -> Iterator[tuple[Place, Seen, Judgement]]:
    """Run a case and judge it; its leftovers are removed by force at the end of the block.

    The folder of a run that went wrong stays, with all its files.

    Raises:
        RefusedError: The lab refused the command.
    """
    client = tools.client if case.backend == COMPOSE else None
    place = Place.make(case, tools.variables)
    good = True
    try:
        with ExitStack() as of_disk:
            disk = made = None
            if case.fault is Fault.ROOM:
                disks.small(place)
            elif case.fault is Fault.READ_ONLY:
                disk = of_disk.enter_context(disks.faulty(place))
            elif case.fault is Fault.NODE_CLOCK:
                made = clock.make(place.folder, case.target)
            began = time.monotonic()
            helper = place.lab(*words(case), **(made.environ if made else {}))
            seen = _see(Scene(place, helper, began + HARD_S, client, made, disk))
            judgement = judge(case, seen)
            good = judgement.verdict in GOOD
            yield place, seen, judgement
    finally:
        if not good:
            leftovers.preserve(place, client)
        leftovers.clear(place, client)
        if good:
            shutil.rmtree(place.folder)


def _see(scene: Scene) -> Seen:
    place, case = scene.place, scene.place.case
    try:
        hit = None if case.fault in UNTIMED else injecting.hit(scene)
        code = _exit_code(scene, hit)
    finally:
        if scene.helper.poll() is None:
            scene.helper.kill()
            scene.helper.wait()
    seconds = None if hit is None else time.time() - hit
    if code == 2:
        raise RefusedError((place.folder / "said").read_text(errors="replace")[-2000:])
    said = place.said_json()
    if case.fault is Fault.HELPER and hit is not None:
        place.done(_COMMAND_S, "down", case.project, "--yes")
    return Seen(
        exit_code=code,
        said=said,
        home=place.home(),
        hit_unix=hit,
        missed=hit is None and case.fault not in UNTIMED,
        seconds=seconds,
        left=leftovers.left(place, scene.client),
    )


def _exit_code(scene: Scene, hit: float | None) -> int | None:
    """Follow the run to its end; the exit code of the command that saw it."""
    place, case, deadline = scene.place, scene.place.case, scene.deadline
    if case.fault is not Fault.HELPER or hit is None:
        if hit is not None and not may_succeed(case):
            deadline = min(deadline, time.monotonic() + patience_s(case.fault) + _AFTER_S)
        return ended(scene.helper, deadline)
    return place.done(deadline - time.monotonic(), "attach", "last", "--json")
