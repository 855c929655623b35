"""One run from its command to the observed result."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tests.torture import clock, disks, injecting, leftovers
from tests.torture.case import COMPOSE, HOSTILE_S, UNTIMED, Case, Fault, Policy
from tests.torture.disks import FaultyDisk
from tests.torture.engine import OwnEngine
from tests.torture.expected import (
    PATIENT_S,
    READY_S,
    STALL_S,
    may_stand_still,
    may_succeed,
    patience_s,
)
from tests.torture.injecting import Hit, Scene
from tests.torture.judging import Seen
from tests.torture.place import ROOT, Place, ended

if TYPE_CHECKING:
    from docker import DockerClient

HARD_S: Final = 300.0
"""A run that takes longer after the start of its command hangs, in seconds."""

_AFTER_S: Final = 60.0
"""So much longer than allowed a run may take after its fault before it is ended by force."""

_POLL_S: Final = 0.05
_COMMAND_S: Final = 120.0

HARM: Final = ROOT / "tests/hostile/programs/harm.py"
_CLOCKS: Final = {Fault.CLOCK: "CLOCK_TASK", Fault.NODE_CLOCK: "CLOCK_NODE"}

_POLICY_FLAG: Final = "--on-failure"
_START_FLAG: Final = "--start"
_READY_FLAG: Final = "--ready-within"


class RefusedError(Exception):
    """lab refused the command: a defect of the harness, or of lab; with the output."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The shared parts of the runs of a session.

    Attributes:
        flags: The options that `lab run` knows.
        variables: The variables by which commands find the engine.
        client: That engine, where there is one.
        own_engine: Makes the engine that may be restarted, once; None where there is none.
    """

    flags: Collection[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    client: DockerClient | None = None
    own_engine: Callable[[], OwnEngine] | None = None


def lacks(case: Case, flags: Collection[str]) -> str | None:
    """Why a case cannot run here; None where it can."""
    absent = [flag for flag in _needed(case) if flag not in flags]
    if absent:
        return f"lab run has no {absent[0]}"
    if case.fault in {Fault.DISK, Fault.ROOM, Fault.READ_ONLY} and os.geteuid() != 0:
        return "only root may mount a small disk"
    if case.fault in _CLOCKS and not (shutil.which("cc") or shutil.which("gcc")):
        return "no C compiler for the clock"
    if case.backend == COMPOSE and os.geteuid() != 0:
        return "only root sees the variables of programs in containers"
    return None


def _needed(case: Case) -> Iterator[str]:
    if case.policy is not Policy.FAIL:
        yield _POLICY_FLAG
    if case.fault is Fault.LATE:
        yield _START_FLAG
    if case.fault is Fault.FREEZE and case.when.at_step is None:
        yield _READY_FLAG  # a program that stops before its first step is not stalled


def words(case: Case, flags: Collection[str]) -> list[str]:
    """The command line of a case, after `lab`."""
    program = str(HARM) if case.harm else case.experiment
    found = ["run", program, "--backend", case.backend, "--gpus", "none", "--json"]
    if not case.harm:
        found += ["--global_steps", str(case.steps), "--seed", str(case.seed)]
        found += ["--record_every", str(max(1, min(20, case.steps // 20)))]
    if case.replicas:
        found += ["--replicas_to_aggregate", str(case.replicas)]
    if may_stand_still(case.fault):
        found += ["--stall", f"{STALL_S:g}s"]
    if _READY_FLAG in flags:
        ready_s = READY_S if may_stand_still(case.fault) else PATIENT_S
        found += [_READY_FLAG, f"{ready_s:g}s"]
    if case.policy is not Policy.FAIL:
        found += [_POLICY_FLAG, case.policy.value]
    if case.fault is Fault.LATE:
        found += [_START_FLAG, f"{case.target}: {case.amount_s:g}s"]
    if case.harm:
        found += ["--", case.harm, str(HOSTILE_S)]
    return found


@dataclass(slots=True)
class Ran:
    """A run that has ended.

    Attributes:
        place: Its place.
        seen: What was observed.
        keep: Whether its folder must stay.
    """

    place: Place
    seen: Seen
    keep: bool = False


@contextmanager
def ran(case: Case, tools: Tools) -> Iterator[Ran]:
    """Run a case; its leftovers are removed by force at the end of the block.

    Raises:
        RefusedError: The lab refused the command.
    """
    engine = tools.own_engine() if case.fault is Fault.ENGINE and tools.own_engine else None
    client = _client(tools, engine) if case.backend == COMPOSE else None
    variables = dict(tools.variables) if engine is None else dict(engine.environ)
    place = Place.make(case, variables)
    keep = False
    try:
        with ExitStack() as stack:
            disk = None
            if case.fault in {Fault.DISK, Fault.ROOM}:
                disks.small(place)
            elif case.fault is Fault.READ_ONLY:
                disk = stack.enter_context(disks.faulty(place, client))
            found = Ran(place, _see(place, tools.flags, client, engine, disk))
            yield found
            keep = found.keep
    finally:
        if keep:
            leftovers.preserve(place, client)
        leftovers.clear(place, client)
        if not keep:
            place.remove()
        if engine is not None and client is not None:
            client.close()


def _see(
    place: Place,
    flags: Collection[str],
    client: DockerClient | None,
    engine: OwnEngine | None,
    disk: FaultyDisk | None,
) -> Seen:
    case = place.case
    variable = _CLOCKS.get(case.fault)
    set_by = clock.make(place.folder, case.target, variable) if variable else None
    began = time.monotonic()
    helper = place.lab(*words(case, flags), environ=set_by.environ if set_by else None)
    try:
        hit, missed = None, False
        if case.fault not in UNTIMED:
            hit = _hit(place, helper, client, engine, set_by, disk, began + HARD_S)
            missed = hit is None
        code = _ended(place, helper, hit, began + HARD_S)
    finally:
        if helper.poll() is None:
            helper.kill()
            helper.wait()
    seconds = None if hit is None else time.monotonic() - hit.monotonic
    seen = Seen(code, None, place.home(), hit.unix if hit else None, missed, seconds)
    if code == 2:
        raise RefusedError((place.folder / "said").read_text(errors="replace")[-2000:])
    if case.fault is Fault.ENGINE or (case.fault is Fault.HELPER and hit is not None):
        place.done(_COMMAND_S, "down", case.project, "--yes")
        seen = replace(seen, home=place.home())
    told = case.fault is not Fault.ENGINE and case.follow_up != "collect"
    return replace(
        seen,
        said=place.said_json() if told else None,
        left=leftovers.left(place, client),
    )


def _hit(
    place: Place,
    helper: subprocess.Popen[bytes],
    client: DockerClient | None,
    engine: OwnEngine | None,
    set_by: clock.Clock | None,
    disk: FaultyDisk | None,
    deadline: float,
) -> Hit | None:
    """Wait for the moment and inject the fault; None where the run ended before."""
    while not place.submitted():
        if helper.poll() is not None or time.monotonic() > deadline:
            return None
        time.sleep(_POLL_S)
    run = place.run()
    assert run is not None  # it was submitted
    scene = Scene(place.case, place, run.name, helper, deadline, client, engine, set_by, disk)
    if not injecting.wait_for_moment(scene, time.monotonic()):
        return None
    return injecting.inject(scene)


def _ended(
    place: Place, helper: subprocess.Popen[bytes], hit: Hit | None, deadline: float
) -> int | None:
    """Follow the run to its end; the exit code of the command that saw it."""
    case = place.case
    if case.fault is Fault.HELPER and hit is not None:
        return _brought_home(place, deadline)
    goes_on = may_succeed(case.fault, case.policy, case.experiment, case.target)
    if hit is not None and not goes_on:
        deadline = min(deadline, hit.monotonic + patience_s(case.fault) + _AFTER_S)
    return ended(helper, deadline)


def _brought_home(place: Place, deadline: float) -> int | None:
    """The result of another command for a run of a killed client."""
    if place.case.follow_up == "attach":
        return place.done(deadline - time.monotonic(), "attach", "last", "--json")
    while time.monotonic() < deadline:
        code = place.done(_COMMAND_S, "collect", "last")
        if code != 0 or place.home().summary:
            return code
        time.sleep(1)
    return None


def _client(tools: Tools, engine: OwnEngine | None) -> DockerClient | None:
    if engine is None:
        return tools.client
    import docker  # noqa: PLC0415  (only where there is an engine)

    return docker.DockerClient(base_url=engine.url)
