"""The recordings that come with lab: some of the sample runs of the notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.base.errors import InputError
from lab.base.shipped import SHIPPED
from lab.base.strict_json import parse
from lab.runner.store.directory import RunDir
from lab.runner.store.names import named_run
from lab.runner.store.run_info import convert

SAMPLES: Final = SHIPPED / "notebooks" / "samples"


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample run, as `index.json` describes it.

    Attributes:
        run: Its id.
        command: The command that made it.
        shows: What it shows, as a short text.
        recording: Its name for `lab attach`, or "".
    """

    run: str
    command: str
    shows: str
    recording: str = ""

    @property
    def directory(self) -> RunDir:
        """Its directory."""
        return RunDir(SAMPLES / self.run)


def recordings() -> Mapping[str, Sample]:
    """Return the recordings that come with lab, by name."""
    index = parse((SAMPLES / "index.json").read_text("utf-8"))
    samples = [convert(sample, Sample) for sample in index.values()]
    return {sample.recording: sample for sample in samples if sample.recording}


def find_recorded(argument: str, store: Path) -> RunDir:
    """Find a recording that comes with lab, or a run.

    Args:
        argument: The name of a recording; or a run's id, a unique prefix of it, last or last~1, or
            the directory of a run.
        store: The run store.

    Raises:
        InputError: It names no run, or several.
        LabError: A directory cannot be read.
    """
    known = recordings()
    if argument in known:
        return known[argument].directory
    try:
        return named_run(argument, store)
    except InputError as error:
        names = ", ".join(known)
        raise InputError(error.what, f"{error.fix}; recordings are {names}") from error


def recorded_elsewhere(argument: str, store: Path) -> RunDir | None:
    """Find a recording that comes with lab, or a run by its directory outside of the run store.

    Returns:
        Its directory; None if the argument names a run of the run store, or of a run volume.

    Raises:
        InputError: The path has no run, or several.
        LabError: A directory cannot be read.
    """
    if argument not in recordings() and "/" not in argument:
        return None
    run = find_recorded(argument, store)
    return None if run.path.resolve().parent == store.resolve() else run
