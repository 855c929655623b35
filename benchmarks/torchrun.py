"""What `lab` costs a program of PyTorch: `lab run ddp` beside plain `torchrun`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import pairs
from benchmarks.results import Outcome, Target
from benchmarks.trainings import (
    ROOT,
    Setting,
    Training,
    UnfitError,
    Workplace,
    by_lab,
    common_time,
    free_ports,
    must,
    print_progress,
    steps_per_second,
    with_progress,
)
from lab.protocol.records import parse_record
from lab.protocol.runtimes import TORCH

CLUSTER: Final = ROOT / "clusters/workers.yaml"
RANKS: Final = 2
"""As many as the workers of `CLUSTER`."""
STEPS, QUICK_STEPS = 1_000, 100
SAME_LOSS: Final = 1e-5
"""The largest difference between last losses of trainings that are the same but for rounding."""

_RANK: Final = 'exec "$0" ddp.py --job_name=worker --task_index="$RANK" "$@"'
"""A shell's command that starts a rank: only the shell knows the number that `torchrun` gave it."""

Measured = tuple[float, float, float]
"""Steps per second, seconds from the command to the last rank's first step, and the last loss."""


def measure(setting: Setting) -> list[Outcome]:
    """Measure the rate of steps and the start of both ways in the same trainings."""
    python = TORCH.python(ROOT)
    if python is None or "local" not in setting.backends:
        print_progress(f"torchrun: not measured: it needs `make {TORCH.target}` and local")
        return []
    steps = QUICK_STEPS if setting.quick else STEPS
    flags = ("--model=mlp", f"--global_steps={steps}", "--seed=1")

    def ours() -> Measured:
        return _measured(by_lab(setting.place, "local", flags, CLUSTER, "ddp"))

    def theirs() -> Measured:
        return _measured(by_torchrun(setting.place, python, flags))

    one = with_progress("`lab run ddp`", ours, _shown)
    other = with_progress("`torchrun`", theirs, _shown)
    print_progress(f"lab run ddp / torchrun: {setting.pairs} pairs, and one that does not count")
    pairs.interleaved(one, other, 1)  # it writes bytecode and fills the page cache
    return outcomes(pairs.interleaved(one, other, setting.pairs), " ".join(flags))


def by_torchrun(place: Workplace, python: Path, flags: Sequence[str]) -> Training:
    """Train by `torchrun`, with the same program and the same flags of each task as `lab run`.

    Raises:
        TrainingError: A rank did not succeed.
    """
    hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(RANKS))
    command = [str(python.with_name("torchrun")), f"--nproc-per-node={RANKS}"]
    command += [f"--master-port={free_ports(1)[0]}", "--no-python", "sh", "-c", _RANK, str(python)]
    variables = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    there = Workplace(place.folder, {**place.environ, **variables})
    began = time.time()
    output = must(
        there, "torchrun", [*command, f"--worker_hosts={hosts}", *flags], cwd=ROOT / "scripts"
    )
    found = [record for record in map(parse_record, output.splitlines()) if record]
    return Training(
        began,
        {
            f"worker-{rank}": [each for each in found if each["task_index"] == rank]
            for rank in range(RANKS)
        },
    )


def _measured(training: Training) -> Measured:
    first = common_time(training.records)[0] - training.began_unix
    *_, last = (each for each in training.records["worker-0"] if "loss" in each)
    return steps_per_second(training.records), first, float(last["loss"])


def _shown(measured: Measured) -> str:
    rate, first, loss = measured
    return f"{rate:,.1f} steps/s, the first after {first:.2f} s, the last loss {loss:.6f}"


def outcomes(raw: Sequence[tuple[Measured, Measured]], flags: str) -> list[Outcome]:
    """Return the ratio of the rates, and the difference of the starts.

    Args:
        raw: For each pair, what was measured with lab, and what with torchrun.
        flags: The flags of the program, as the page names them.

    Raises:
        UnfitError: The trainings are not the same: their losses differ.
    """
    losses = [measured[2] for pair in raw for measured in pair]
    if max(losses) - min(losses) > SAME_LOSS:
        raise UnfitError(f"the trainings differ: their last losses are {losses}")
    rates = [(ours[0], theirs[0]) for ours, theirs in raw]
    starts = [(ours[1], theirs[1]) for ours, theirs in raw]
    how = (
        f"`ddp` ({TORCH.title}, {flags}) with {RANKS} ranks on CPUs, each a process with one"
        " thread. One way is `lab run --backend local`, which boots and removes its environment"
        f" each time. The other one is `torchrun --nproc-per-node={RANKS}`, with the same Python,"
        " program, flags and batches, on 127.0.0.1. "
    )
    return [
        Outcome(
            key="torchrun-throughput",
            what="steps a second, `lab run ddp` on local / `torchrun`",
            unit="ratio",
            target=Target("at least", 0.95),
            found=pairs.ratio(rates),
            how=f"{how}Steps per second while all ranks train, from the step records of both.",
            details=_medians(rates, "{:,.1f} steps/s"),
            raw={"pairs": rates},
        ),
        Outcome(
            key="torchrun-start",
            what="start, `lab run ddp` on local - `torchrun`",
            unit="s",
            target=Target("at most", 1.0),
            found=pairs.estimate([ours - theirs for ours, theirs in starts]),
            how=f"{how}The time from the start of the command to the first step record of the last"
            " rank, in the same trainings. The figure is the difference.",
            details=_medians(starts, "{:.2f} s"),
            raw={"pairs": starts},
        ),
    ]


def _medians(raw: Sequence[tuple[float, float]], shown: str) -> dict[str, str]:
    columns = zip(("`lab run`", "`torchrun`"), zip(*raw, strict=True), strict=True)
    return {name: shown.format(pairs.estimate(values).median) for name, values in columns}
