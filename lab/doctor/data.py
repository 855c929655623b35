"""The data set, the description of this directory, and where runs and environments are kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.doctor.model import Finding, Need, Verdict
from lab.errors import DescriptionError, InputError, LabError
from lab.placement.plan import Plan
from lab.task.text import short

if TYPE_CHECKING:
    from lab.config import Cluster
    from lab.gpu import Inventory

AREA: Final = "data"
MNIST: Final = Path(__file__).parents[1] / "datasets" / "mnist"
CHECKSUMS: Final = "SHA256SUMS"
READ_S: Final = 30.0
"""Seconds in which 11 MB must be read: a file server may hang."""

DESCRIPTION: Final = "cluster.yaml"


@dataclass(frozen=True, slots=True)
class Described:
    """The description of this directory.

    Attributes:
        cluster: It; None where there is none, or it is not valid.
        plan: Placed on this box, on CPUs where the box has too few cards; None likewise.
        finding: What there is to say of it.
    """

    cluster: Cluster | None
    plan: Plan | None
    finding: Finding

    @property
    def gpus(self) -> int:
        """How many GPUs it asks for."""
        return 0 if self.cluster is None else self.cluster.gpus_needed


def dataset(directory: Path = MNIST) -> Finding:
    """Whether the four files of MNIST are there as they were shipped."""

    def failed(what: str) -> Finding:
        mend = "`git checkout -- lab/datasets/mnist`, or install lab anew"
        return Finding(AREA, "MNIST", Verdict.FAILED, what, mend, blocks="the data set")

    try:
        lines = (directory / CHECKSUMS).read_text("ascii").splitlines()
    except (OSError, ValueError) as error:
        return failed(f"{CHECKSUMS} cannot be read ({_why(error)})")
    size = 0
    for line in filter(None, lines):
        digest, _, name = line.partition("  ")
        try:
            content = (directory / Path(name).name).read_bytes()
        except OSError as error:
            return failed(f"{short(name)} cannot be read ({_why(error)})")
        if hashlib.sha256(content).hexdigest() != digest:
            return failed(f"{short(name)} is damaged: its SHA-256 is another one")
        size += len(content)
    what = f"{len(list(filter(None, lines)))} files, {size / 10**6:.0f} MB, checksums right"
    return Finding(AREA, "MNIST", Verdict.OK, what)


def described(inventory: Inventory, path: Path = Path(DESCRIPTION)) -> Described:
    """Read the description of this directory and place it on this box."""
    # Imported here: pydantic and ruamel.yaml are among the packages that may be missing.
    from lab.config import load_cluster  # noqa: PLC0415
    from lab.gpu import take_inventory  # noqa: PLC0415
    from lab.placement.place import place  # noqa: PLC0415

    def finding(verdict: Verdict, what: str, mend: str = "") -> Finding:
        return Finding(AREA, "description", verdict, what, mend)

    if not path.exists():
        what = f"no {path} in this directory, so that nothing is compared with it"
        return Described(None, None, finding(Verdict.SKIPPED, what))
    try:
        cluster = load_cluster(path)
    except DescriptionError as error:
        count = len(error.problems)
        what = f"{path} has {'a fault' if count == 1 else f'{count} faults'}"
        return Described(None, None, finding(Verdict.WARNING, what, "`lab validate` names them"))
    except InputError as error:
        return Described(None, None, finding(Verdict.WARNING, error.what, error.mend))
    tasks = sum(len(job.on) for job in cluster.jobs.values())
    cards = cluster.gpus_needed
    what = (
        f"{path}: {cluster.name}, {_many(len(cluster.nodes), 'node')}, {_many(tasks, 'task')}, "
        f"{_many(cards, 'GPU')}"
    )
    without = take_inventory("none", cluster)
    try:
        plan = place(cluster, inventory if inventory.gpus else without)
    except LabError as error:
        trouble = finding(Verdict.WARNING, f"{what}: {error.what}", error.mend)
        try:
            return Described(cluster, place(cluster, without), trouble)
        except LabError:
            return Described(cluster, None, trouble)
    notices = list(plan.shortfalls)
    if cards and not inventory.gpus:
        notices.insert(0, "without GPUs here, so on CPUs")
    if notices:
        what += f"; {short('; '.join(notices))}"
    return Described(cluster, plan, finding(Verdict.OK, what))


def writable(name: str, directory: Path, variable: str) -> Finding:
    """Whether a directory can be written, or made where it is not there yet.

    Args:
        name: What is kept there.
        directory: Where.
        variable: The environment variable that names another place.
    """
    there = directory.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    mend = f"mend its permissions (`ls -ld {there}`), or name another place in {variable}"
    if not there.is_dir():
        what = f"{there} is no directory"
    elif not os.access(there, os.W_OK | os.X_OK):
        what = f"{there} cannot be written"
    else:
        return Finding(AREA, name, Verdict.OK, str(directory.absolute()))
    return Finding(
        AREA, name, Verdict.FAILED, short(what), mend, blocks=f"{name} cannot be written"
    )


def leftovers(names: Callable[[], Iterable[tuple[str, bool]]]) -> Finding:
    """Environments of processes whose supervisor has died.

    Args:
        names: Every local environment on record, and whether it is up.
    """
    known = list(names())
    dead = [name for name, alive in known if not alive]
    if not dead:
        up = f"{len(known)} up, see `lab ls`" if known else "none"
        return Finding(AREA, "local environments", Verdict.OK, up, needed_for=Need.LOCAL)
    return Finding(
        AREA,
        "local environments",
        Verdict.WARNING,
        f"died, and its runs wait to be brought home: {short(', '.join(dead))}",
        f"`lab down {short(dead[0])}`",
        Need.LOCAL,
    )


# ---- Facts of this machine


def state_directory() -> Path:
    """Where environments are kept."""
    from lab.backends.local import state  # noqa: PLC0415

    return state.base().parent


def local_environments() -> Sequence[tuple[str, bool]]:
    """Every local environment on record, and whether it is up."""
    from lab.backends.local import state  # noqa: PLC0415

    records = [place.read() for place in state.places()]
    return [(each.project, each.process.alive()) for each in records if each is not None]


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "no text"


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
