"""The cost of containers: from bare processes to `lab run`, with one change in each rung."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import Any, Final, NamedTuple

from benchmarks import engine, ladder, pairs
from benchmarks.containers import Form, by_containers
from benchmarks.marks import put
from benchmarks.measure import Setting, print_progress, with_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.steps import Records, common_time, steps_per_second
from benchmarks.tables import table
from benchmarks.trainings import ROOT, Workplace, by_hand, by_lab
from lab.task.probes.netem import MTU

KEY: Final = "container-ladder"
KEY_NODE: Final = "container-node"
ONE_NODE_CLUSTER: Final = ROOT / "benchmarks/one-node.yaml"
PAGE: Final = ROOT / "docs/evidence/containers.md"
STEPS, QUICK_STEPS = 4_000, 1_500
SEED: Final = 1
COMMAND: Final = "python -m benchmarks container-ladder"
_NETFILTER: Final = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
_STAT: Final = Path("/proc/stat")
_EVERY_S: Final = 0.2
_TICK_US: Final = 1e6 / 100  # USER_HZ, the unit of /proc/stat

HOW: Final = (
    "mnist_async.py, softmax, 1 ps and 3 workers, {steps:,} global steps, seed 1; global steps per"
    " second while all three workers train, from the step records. CPU time is that of the whole"
    " machine in the same interval, from /proc/stat, so that it includes the kernel's work for"
    " packets, the engine, the agents and the health checks. Each round measures all rungs,"
    " alternately upwards and downwards. Start and end are not counted."
)


class Measured(NamedTuple):
    """One training.

    Attributes:
        rate: Global steps per second.
        cpu_us: CPU time of the machine for each global step, in microseconds.
        kernel_us: The part of it in the kernel.
    """

    rate: float
    cpu_us: float
    kernel_us: float


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to train.

    Attributes:
        name: The name in the table.
        train: The function that trains with the given flags of the program.
    """

    name: str
    train: Callable[[Workplace, Sequence[str]], Records]


def _processes(place: Workplace, flags: Sequence[str]) -> Records:
    return by_hand(place, flags, shells=True).records


def _containers(form: Form) -> Callable[[Workplace, Sequence[str]], Records]:
    return lambda place, flags: by_containers(place, flags, form).records


def _without_netfilter(place: Workplace, flags: Sequence[str]) -> Records:
    with _netfilter("0"):
        return by_containers(place, flags, Form(mtu=MTU)).records


def _lab(place: Workplace, flags: Sequence[str]) -> Records:
    return by_lab(place, "compose", flags).records


def _one_node(place: Workplace, flags: Sequence[str]) -> Records:
    return by_lab(place, "compose", flags, ONE_NODE_CLUSTER).records


RUNGS: Final = (
    Rung("processes, each in its own session", _processes),
    Rung("containers on the host's network, no seccomp", _containers(Form("host", seccomp=False))),
    Rung("with seccomp's default profile", _containers(Form("host"))),
    Rung("in one network namespace of their own", _containers(Form("shared"))),
    Rung("each in its own, on a bridge without netfilter", _without_netfilter),
    Rung("with netfilter", _containers(Form(mtu=MTU))),
    Rung("`lab run`, a node for each task", _lab),
)
"""Each rung has everything of the rungs before it."""

ONE_NODE: Final = Rung("`lab run`, one node for all tasks", _one_node)
"""Not a rung: the tasks share the network namespace of their node."""

ROWS: Final = (
    (KEY, RUNGS, Target("at least", 0.95)),
    (KEY_NODE, (RUNGS[-1], ONE_NODE), Target("at least", 1.0)),
)


def measure(setting: Setting) -> list[Outcome]:
    """Measure all rungs in rounds, on an engine."""
    steps = QUICK_STEPS if setting.quick else STEPS
    flags = (f"--global_steps={steps}", f"--seed={SEED}")
    ways = (*RUNGS, ONE_NODE)
    rounds: list[dict[Rung, Measured]] = []
    with engine.ready(setting.place) as why_not:
        print_progress(f"containers: {why_not or f'{setting.pairs} rounds of {len(ways)}'}")
        for number in range(0 if why_not else setting.pairs):
            measured = {}
            for rung in ways if number % 2 == 0 else ways[::-1]:
                measured[rung] = with_progress(
                    rung.name, lambda rung=rung: _measure(rung, setting.place, flags), _shown
                )()
            rounds.append(measured)
    found = _outcomes(rounds, steps, why_not)
    if not setting.quick:
        keep_in_page({outcome.key: outcome.to_json() for outcome in found})
    return found


def unmeasured() -> list[Outcome]:
    """Return the rows without figures, for RESULTS.md before the first measurement."""
    return _outcomes([], STEPS, "")


def page_table(kept: Mapping[str, Any] | None) -> str:
    """Return the ladder as a table in Markdown: rates, ratios and CPU time.

    Args:
        kept: The ladder's entry in `results.json`; None if there is none.
    """
    if kept is None:
        return f"Not measured yet: run `{COMMAND}`.\n"
    raw = kept["raw"]
    rates = ladder.table(kept).splitlines()[2:]
    rows = []
    for place, line in enumerate(rates):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        cpu, kernel = (
            pairs.estimate([each[place] for each in raw[name]]).median
            for name in ("cpu_us", "kernel_us")
        )
        rows.append([*cells, f"{cpu:,.0f}", f"{kernel:,.0f}"])
    names = ["rung", "global steps a second", "ratio to the rung above", "ratio to processes"]
    return table([*names, "CPU µs a step", "of which in the kernel"], rows)


def keep_in_page(kept: Mapping[str, Mapping[str, Any]], page: Path = PAGE) -> None:
    """Write both tables into the page, between their marks."""
    text = page.read_text(encoding="utf-8")
    for key in (KEY, KEY_NODE):
        text = put(text, key, page_table(kept.get(key)))
    page.write_text(text, encoding="utf-8")


def _outcomes(rounds: Sequence[Mapping[Rung, Measured]], steps: int, why_not: str) -> list[Outcome]:
    why_not = why_not or ("" if rounds else f"run `{COMMAND}` on an idle machine")
    return [
        replace(_outcome(key, rungs, target, rounds), how=HOW.format(steps=steps), why_not=why_not)
        for key, rungs, target in ROWS
    ]


def _outcome(
    key: str, rungs: Sequence[Rung], target: Target, rounds: Sequence[Mapping[Rung, Measured]]
) -> Outcome:
    values = [[each[rung] for rung in rungs] for each in rounds]
    rates = [[each.rate for each in line] for line in values]
    columns = zip(rungs, zip(*rates, strict=True), strict=True) if rates else ()
    return Outcome(
        key=key,
        what=f"training throughput, {rungs[-1].name} / {rungs[0].name}",
        unit="ratio",
        target=target,
        found=pairs.ratio([(line[-1], line[0]) for line in rates]) if rates else None,
        how=HOW,
        details={
            rung.name: f"{pairs.estimate(column).median:,.0f} steps/s" for rung, column in columns
        },
        raw={
            "rungs": [rung.name for rung in rungs],
            "rounds": rates,
            "cpu_us": [[each.cpu_us for each in line] for line in values],
            "kernel_us": [[each.kernel_us for each in line] for line in values],
        },
    )


def _measure(rung: Rung, place: Workplace, flags: Sequence[str]) -> Measured:
    with _cpu_samples() as samples:
        records = rung.train(place, flags)
    rate, (begin, end) = steps_per_second(records), common_time(records)
    inside = [each for each in samples if begin <= each[0] <= end]
    (first_s, first_busy, first_kernel), (last_s, last_busy, last_kernel) = inside[0], inside[-1]
    steps = rate * (last_s - first_s)
    busy, kernel = last_busy - first_busy, last_kernel - first_kernel
    return Measured(rate, busy * _TICK_US / steps, kernel * _TICK_US / steps)


@contextlib.contextmanager
def _cpu_samples() -> Iterator[list[tuple[float, int, int]]]:
    """Sample during the block: the time, and the machine's CPU ticks, all and in the kernel."""
    samples: list[tuple[float, int, int]] = []
    done = threading.Event()

    def sample() -> None:
        while not done.wait(_EVERY_S):
            samples.append((time(), *cpu_ticks(_STAT.read_text(encoding="ascii"))))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def cpu_ticks(stat: str) -> tuple[int, int]:
    """Return the busy ticks of all CPUs since the boot, and those of them in the kernel.

    Args:
        stat: The content of /proc/stat. The fields of its first line: proc_stat(5).
    """
    user, nice, system, _, _, irq, softirq = map(int, stat.split("\n", 1)[0].split()[1:8])
    kernel = system + irq + softirq
    return user + nice + kernel, kernel


@contextlib.contextmanager
def _netfilter(value: str) -> Iterator[None]:
    """Set whether packets on a bridge pass through iptables; at the end restore the host's setting.

    Without the kernel module br_netfilter they never do.
    """
    before = _NETFILTER.read_text(encoding="ascii") if _NETFILTER.exists() else None
    if before is not None:
        _NETFILTER.write_text(value, encoding="ascii")
    try:
        yield
    finally:
        if before is not None:
            _NETFILTER.write_text(before, encoding="ascii")


def _shown(measured: Measured) -> str:
    return (
        f"{measured.rate:,.0f} steps/s, {measured.cpu_us:,.0f} µs of CPU a step,"
        f" {measured.kernel_us:,.0f} in the kernel"
    )
