"""Slurm: the start of a training in a job, and the cost of its agents.

LAB_TEST_SLURM=1 python -m benchmarks slurm
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import pairs
from benchmarks.measure import Setting, print_progress, with_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.overhead import Case, measure_case
from benchmarks.start import first_steps
from benchmarks.throughput import Way, measure_way
from benchmarks.trainings import CLUSTER_OF_3, Workplace, by_hand
from tests.support import slurm as slurms

KEY: Final = "start-slurm"
COMMAND: Final = "LAB_TEST_SLURM=1 python -m benchmarks slurm"
FLAGS: Final = ("--global_steps=200", "--seed=1", "--record_every=1")
TASKS: Final = ("ps-0", "worker-0", "worker-1")
STARTED: Final = Target("at most", 1.5)

SRUN: Final = Way(
    "-srun",
    "by `srun`",
    "one `srun` for each process on the same Slurm",
    partial(by_hand, tasks=TASKS, prefix=("srun", "--quiet", "--nodes=1", "--ntasks=1")),
    CLUSTER_OF_3,
    len(TASKS) - 1,
)
AGENTS: Final = Case("overhead-slurm", CLUSTER_OF_3, 2, 0.01, "slurm")

HOW: Final = (
    "The time from the start of `lab run --backend slurm` to the first step record of the last"
    " worker, without the time in which the job was pending, relative to the same with `--backend"
    " local` (mnist_async.py, 1 ps and 2 workers). Neither has a running environment. The"
    " controller's log has the times at which the job was submitted and got its nodes, in"
    " milliseconds. Slurm's controller and its three nodes are on the same host."
)

_SUBMITTED: Final = re.compile(r"^\[(\S+)\] _slurm_rpc_submit_batch_\w*job: JobId=", re.MULTILINE)
_STARTED: Final = re.compile(r"^\[(\S+)\] .*(?:Allocate|Started) JobId=", re.MULTILINE)


@contextlib.contextmanager
def ready(place: Workplace) -> Iterator[str]:
    """Provide a private Slurm during the block; the commands of the workplace find it.

    Yields:
        The reason why there is none; "" if it answers.
    """
    before = dict(place.environ)
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(slurms.a_slurm())
        except slurms.NoSlurm as reason:
            yield str(reason)
            return
        for name in ("SLURM_CONF", "PATH"):
            place.environ[name] = found.environment[name]
        place.environ["LAB_PYTHON"] = sys.executable
        yield ""
    place.environ.clear()
    place.environ.update(before)


def measure(setting: Setting) -> list[Outcome]:
    """Measure the start, the throughput, and the CPU time of the agents."""
    with ready(setting.place) as why_not:
        print_progress(f"slurm: {why_not or f'{setting.pairs} pairs'}")
        if why_not:
            return [started([], why_not), measure_way("slurm", setting, why_not, SRUN)]
        raw = pairs.interleaved(
            with_progress("slurm", lambda: _on_slurm(setting.place), _shown),
            with_progress("local", lambda: (_first_steps(setting.place, "local"), 0.0), _shown),
            setting.pairs,
        )
        return [
            started([(*on_slurm, on_local) for on_slurm, (on_local, _) in raw], ""),
            measure_way("slurm", setting, "", SRUN),
            measure_case(setting, AGENTS),
        ]


def unmeasured() -> list[Outcome]:
    """Return the row without a figure, for RESULTS.md before the first measurement."""
    return [started([], f"run `{COMMAND}` on an idle machine")]


def started(raw: list[tuple[float, float, float]], why_not: str) -> Outcome:
    """Return the row of the start.

    Args:
        raw: Of each pair, the seconds on Slurm, those in which the job was pending, and the
            seconds on local.
        why_not: The reason why there are none.
    """
    on_slurm, pending, on_local = ([one[side] for one in raw] for side in range(3))
    return Outcome(
        key=KEY,
        what="`lab run` on slurm to every first step, without the queue / on local",
        unit="ratio",
        target=STARTED,
        found=pairs.ratio([(all_s - pending_s, local_s) for all_s, pending_s, local_s in raw])
        if raw
        else None,
        how=HOW,
        why_not=why_not,
        details={
            "on slurm": f"{pairs.estimate(on_slurm).median:.2f} s",
            "of which pending": f"{pairs.estimate(pending).median:.2f} s",
            "on local": f"{pairs.estimate(on_local).median:.2f} s",
        }
        if raw
        else {},
        raw={"slurm_s": on_slurm, "pending_s": pending, "local_s": on_local},
    )


def pending_s(log: str) -> float:
    """Return the seconds in which the only job in a log of the controller was pending.

    A heterogeneous job has its nodes when its last component starts.

    Raises:
        ValueError: The log does not have one job that has started.
    """
    submitted, begun = (
        [datetime.fromisoformat(time) for time in pattern.findall(log)]
        for pattern in (_SUBMITTED, _STARTED)
    )
    if len(submitted) != 1 or not begun:
        raise ValueError(f"the controller's log has {len(submitted)} jobs, {len(begun)} starts")
    return (begun[-1] - submitted[0]).total_seconds()


def _on_slurm(place: Workplace) -> tuple[float, float]:
    log = Path(place.environ["SLURM_CONF"]).with_name("slurmctld.log")
    before = log.stat().st_size
    seconds = _first_steps(place, "slurm")
    return seconds, pending_s(log.read_bytes()[before:].decode(errors="replace"))


def _first_steps(place: Workplace, backend: str) -> float:
    return first_steps(place, backend, FLAGS, CLUSTER_OF_3)


def _shown(found: tuple[float, float]) -> str:
    return f"{found[0]:.2f} s, {found[1]:.2f} s of it pending"
