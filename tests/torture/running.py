"""One run from its command to its judgement."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import Final

from tests.torture import injecting, leftovers
from tests.torture.case import COMPOSE, OF_PROCESSES, UNTIMED, Case, Fault
from tests.torture.expected import STALL_S, WELL, expected, patience_s
from tests.torture.injecting import Scene
from tests.torture.judging import Judgement, Seen, judge
from tests.torture.place import Place, ended

HARD_S: Final = 300.0
"""A run that takes longer after the start of its command hangs, in seconds."""

_AFTER_S: Final = 60.0
"""So much longer than allowed a run may take after its fault before it is ended by force."""

_COMMAND_S: Final = 120.0


def lacks(backend: str, fault: Fault) -> str:
    """Why such a run is not possible here; "" where it is."""
    if backend == COMPOSE and fault in OF_PROCESSES:
        return f"{fault} is a fault of processes"
    if os.geteuid() != 0 and (backend == COMPOSE or fault in {Fault.ROOM, Fault.READ_ONLY}):
        return "only root may mount a small disk, or see the variables of programs in containers"
    if fault is Fault.NODE_CLOCK and not shutil.which("cc"):
        return "no C compiler for the clock"
    return ""


def run(case: Case) -> Judgement:
    """Run a case and judge it; all that it left is removed by force.

    The folder of a run that went wrong is kept under another name, with all its files.
    """
    place = Place.make(case)
    try:
        judgement = judge(case, _seen(place))
        if judgement.faults:
            (place.state / "filler").unlink(missing_ok=True)
            kept = f"{place.folder}-kept"
            # As they are: a link may lead to a file without end.
            subprocess.run(["cp", "--archive", place.folder, kept], check=False)
            judgement.faults.append(f"its files are in {kept}")
        return judgement
    finally:
        leftovers.clear(place)


def _words(case: Case) -> list[str]:
    words = ["run", case.experiment, "--backend", case.backend, "--gpus", "none", "--json"]
    words += ["--on-failure", case.policy, "--seed", str(case.seed)]
    words += ["--global_steps", str(case.steps)]
    words += ["--record_every", str(max(1, min(20, case.steps // 20)))]
    if case.fault is Fault.FREEZE:
        words += ["--stall", f"{STALL_S:g}s"]
    if case.fault is Fault.LATE:
        words += ["--start", f"{case.target}: {case.amount_s:g}s"]
    return words


def _seen(place: Place) -> Seen:
    case = place.case
    variables, strike = injecting.prepare(place)
    deadline = time.monotonic() + HARD_S
    client = place.lab(*_words(case), **variables)
    try:
        scene = Scene(place, client, deadline, strike)
        hit = None if case.fault in UNTIMED else injecting.hit(scene)
        code = _exit_code(scene, hit)
    finally:
        client.kill()
        client.wait()
    ended_unix, said = time.time(), place.said_json()
    if case.fault is Fault.HELPER and hit is not None:
        ended(place.lab("down", case.project, "--yes"), time.monotonic() + _COMMAND_S)
    return Seen(code, said, place.home(), hit, ended_unix, leftovers.left(place))


def _exit_code(scene: Scene, hit: float | None) -> int | None:
    """Follow the run to its end; the exit code of the command that saw it."""
    case, deadline = scene.place.case, scene.deadline
    if hit is None:
        return ended(scene.client, deadline)
    if case.fault is Fault.HELPER:
        return ended(scene.place.lab("attach", "last", "--json"), deadline)
    if not expected(case) & WELL:  # else it may go on, and take its time
        deadline = min(deadline, time.monotonic() + patience_s(case.fault) + _AFTER_S)
    return ended(scene.client, deadline)
