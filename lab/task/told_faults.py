"""Faults that are told while a run is under way: files of the run's `faults/`, in their order."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from pathlib import Path

from lab.task.faults import Fault, concrete
from lab.task.files import read_regular, write_atomically
from lab.task.protocol import Volume
from lab.task.shipping import find


def tell(volume: Volume, run_id: str, text: str) -> None:
    """Put a fault on the volume, where the agents of a run that is under way find it.

    Args:
        volume: The run volume.
        run_id: The run.
        text: A fault without anything random.

    Raises:
        NoSuchRun: There is none of this name.
        ValueError: The text is no such fault.
        OSError: The volume cannot be written.
    """
    fault = concrete(text)
    find(volume, run_id)
    folder = volume.faults(run_id)
    folder.mkdir(exist_ok=True)
    told = json.dumps({"fault": fault.text, "time_unix": round(time.time(), 3)})
    for number in itertools.count(len(told_of(folder))):  # the first that nobody has taken
        with contextlib.suppress(FileExistsError):
            write_atomically(folder / f"{number}.json", told, durable=False, new=True)
            return


def told_of(folder: Path) -> dict[int, Path]:
    """Number to file of the faults that were told, in their order."""
    names = [path for path in folder.glob("*.json") if path.stem.isdecimal()]
    return {int(path.stem): path for path in sorted(names, key=lambda path: int(path.stem))}


def read(path: Path) -> Fault:
    """The fault of one such file.

    Raises:
        ValueError: It holds none that an agent can take.
    """
    try:
        return concrete(str(json.loads(read_regular(path))["fault"]))
    except (KeyError, TypeError, OSError, RecursionError) as error:
        raise ValueError(f"{path.name} holds no fault") from error
