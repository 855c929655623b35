"""Slurm's commands: submit a job, find it, cancel it.

A job is found by its name, which is unique. So a command that was killed while it submitted a job
leaves nothing that cannot be found.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.base.errors import LabError
from lab.base.text import short

_PATIENCE_S: Final = 60.0
"""Seconds that Slurm has to answer a command."""

_PARTITION: Final = re.compile(
    r"^PartitionName=(\S+) .*\bDefault=(YES|NO) .*\bTotalNodes=(\d+)", re.MULTILINE
)

PENDING: Final = "PENDING"
COMPLETING: Final = "COMPLETING"
"""Slurm ends its tasks; afterwards the job is in the queue again, or has ended."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job in Slurm's queue.

    Attributes:
        id: Its number; of a heterogeneous job, the number of its first component.
        state: Its state, as Slurm names it; `COMPLETING` if a component ends, and `PENDING` if one
            waits.
        reason: Why it waits, as Slurm names it; "" if unknown.
    """

    id: int
    state: str
    reason: str

    @property
    def runs(self) -> bool:
        """Whether it has its nodes."""
        return self.state not in {PENDING, "CONFIGURING", "REQUEUED"}


def submit(
    script: Path, *, name: str, output: Path, root: Path, environ: Mapping[str, str]
) -> None:
    """Submit a batch script.

    Args:
        script: The script.
        name: The job's name.
        output: The file with the script's output.
        root: The project's directory, in which the job starts.
        environ: The environment variables of the job.

    Raises:
        LabError: Slurm refuses it.
    """
    options = [f"--job-name={name}", f"--output={output}", f"--chdir={root}"]
    _run(["sbatch", "--parsable", *options, str(script)], environ)


def find(name: str) -> Job | None:
    """Find a job of this user; None if it has ended.

    Raises:
        LabError: Slurm does not answer.
    """
    command = ["squeue", "--noheader", "--me", f"--name={name}", "--format=%A|%T|%r"]
    components = [line.strip().split("|", 2) for line in _run(command).splitlines()]
    if not components:
        return None
    # Slurm may start the components of a job one after the other.
    waiting = [component for component in components if component[1] == PENDING]
    ending = [component for component in components if component[1] == COMPLETING]
    _, state, _ = (ending or waiting or components)[0]
    reasons = [reason for *_, reason in waiting if reason not in {"None", ""}]
    return Job(min(int(number) for number, *_ in components), state, (reasons or [""])[0])


def nodes(partitions: str | None) -> tuple[str, int]:
    """Return the partitions of a job, and the number of their nodes; 0 if none of them exists.

    Nodes that are down, and those of a cloud that are off, count.

    Args:
        partitions: Their names, separated by commas; None: Slurm's default.

    Raises:
        LabError: Slurm does not answer.
    """
    printed = _run(["scontrol", "--all", "--oneliner", "show", "partition"])
    requested = partitions.split(",") if partitions else ()
    counts = {
        name: int(count)
        for name, default, count in _PARTITION.findall(printed)
        if (name in requested if requested else default == "YES")
    }
    return ",".join(counts), sum(counts.values())


def cancel(name: str) -> None:
    """Cancel a job of this user; do nothing if it has ended.

    Raises:
        LabError: Slurm does not answer.
    """
    _run(["scancel", "--quiet", "--me", f"--name={name}"])


def requeue(job: int) -> None:
    """End the tasks of a job, and put it back into the queue.

    Raises:
        LabError: Slurm refuses it.
    """
    _run(["scontrol", "requeue", str(job)])


def version() -> str:
    """Return Slurm's version, such as `slurm-wlm 22.05.8`.

    Raises:
        LabError: Slurm's commands cannot be run.
    """
    return _run(["sinfo", "--version"]).strip()


def _run(command: list[str], environ: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(
            f"{command[0]} does not answer: {error}", "check that `sinfo` works"
        ) from error
    if done.returncode:
        printed = " / ".join(done.stderr.strip().splitlines()) or f"exit code {done.returncode}"
        hint = "compare the config with `sinfo`, and set options such as SBATCH_PARTITION"
        if "not supported" in printed:
            hint = (
                "this cluster does not support heterogeneous jobs: give all nodes of the config"
                " the same number of tasks, and the same cpus, memory and gpus"
            )
        raise LabError(f"{command[0]} failed: {short(printed, 300)}", hint)
    return done.stdout
