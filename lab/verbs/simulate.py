"""`lab simulate WAY`.

No model is trained. Each figure is a prediction for softmax regression on MNIST. Its error covered
9 of 10 of the measured predictions, all on one machine; on yours it may be larger. See
docs/explanation/scaling.md. By default the shipped machine is simulated; --from RUN, such as --from
last, calibrates on a run of your own machine, and predicts up to three times as many tasks.

Examples:
    # the shipped machine with more workers
    lab simulate async --workers 2,4,6
    # other step times
    lab simulate sync --workers 4 --seed 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from rich.table import Table

from lab.base.converters import counts, one_of, whole
from lab.base.options import Argument, Flag, verb
from lab.base.tables import table_of
from lab.cluster.project import AnyPath
from lab.verbs.common_options import RunsDir
from lab.verbs.printing import Note, Tabular, prints

if TYPE_CHECKING:
    from lab.study.simulation.machine import Machine, Prediction

WAYS: Final = ("async", "sync", "multiworker")
MAX_WORKERS: Final = 512
MAX_PS: Final = 64
_ERRORS: Final = (
    "± covered 9 of 10 of the measured predictions, on one machine: see docs/explanation/scaling.md"
)


@dataclass(frozen=True, slots=True, repr=False)
class Simulation(Tabular):
    """Simulated trainings.

    Attributes:
        machine: The machine that calibrates.
        predictions: The trainings.
    """

    machine: Machine
    predictions: Sequence[Prediction]

    @property
    def notes(self) -> list[str]:
        """What the predictions are based on, and what was not validated."""
        fix = "" if self.machine.is_run else "; for your own machine use --from RUN"
        notes = [f"calibrated on {self.machine.label}{fix}"]
        if any(each.error for each in self.predictions):
            notes.append(_ERRORS)
        reasons = dict.fromkeys(why for each in self.predictions for why in each.not_validated)
        return notes + [f"no known error with {reason}" for reason in reasons]

    def to_json(self) -> dict[str, Any]:
        """Return what `lab simulate --json` prints."""
        machine, predictions = self.machine, self._entries()
        return {"machine": machine.label, "cores": machine.cores, "predictions": predictions}

    def _entries(self) -> list[dict[str, Any]]:
        """Return the trainings, with their measures."""
        return [each._asdict() for each in self.predictions]

    def _shown(self) -> Sequence[Table | str]:
        columns = [">workers", ">ps", ">steps/s", ">images/s"]
        table = table_of(columns, [each.cells() for each in self.predictions])
        return [table, *map(Note, self.notes)]


@verb
def simulate(  # noqa: D417  (the decorator adds those of common_options)
    way: Annotated[str, Argument(parse=one_of(*WAYS))],
    *,
    from_: Annotated[AnyPath | None, Flag(shows="RUN")] = None,
    workers: Annotated[
        int | Sequence[int] | None, Flag(parse=counts(MAX_WORKERS), shows="COUNTS")
    ] = None,
    ps: Annotated[int | Sequence[int] | None, Flag(parse=counts(MAX_PS), shows="COUNTS")] = None,
    seed: Annotated[int, Flag(parse=whole(0, 2**31 - 1), shows="N")] = 0,
    runs_dir: RunsDir = None,
) -> Simulation:
    """Predict the speed of a training by a simulation of its steps; start nothing.

    Args:
        way: async, sync or multiworker.
        from_: The run that calibrates: an id, last, or a directory (default: the shipped machine).
        workers: Numbers of workers: 1,2,6 (default: one, two and three times those of the run).
        ps: Numbers of parameter servers, each with each number of workers (default: as in the run).
        seed: Seed of the random step times; equal seeds give equal results.

    Raises:
        InputError: An argument is invalid, the run cannot calibrate, or a number of tasks is more
            than three times from the run's.
        LabError: The run cannot be read.
    """
    # Imported here: SimPy is a package of an extra.
    from lab.study.simulation.discrete_events import Way  # noqa: PLC0415
    from lab.study.simulation.machine import machine_for, predict  # noqa: PLC0415

    given = locals()
    wanted = Way(way)
    machine = machine_for(wanted, given["from_"], given["runs_dir"])
    numbers = (given[name] for name in ("workers", "ps", "seed"))
    return Simulation(machine, predict(wanted, machine, *numbers))


command = prints(simulate)
