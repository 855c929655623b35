"""Simulate a training from Python: `lab simulate` without its command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from rich.console import Group
from rich.text import Text

from lab import units
from lab.api.tables import Shown
from lab.config import Cluster
from lab.errors import InputError
from lab.experiments.registry import EXPERIMENTS
from lab.extras import named_extras
from lab.options import Argument, Flag, Switch, read_options
from lab.options.types import OneOf
from lab.project import AnyPath
from lab.run.fault_injection import parse_faults
from lab.simulation import forecasts

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, repr=False)
class Simulation(Shown):
    """Simulated trainings.

    Attributes:
        result: The trainings, the nodes and the costs of a step.
    """

    result: forecasts.Simulation

    @named_extras()
    def frame(self) -> pd.DataFrame:
        """Return a row for each training, with the metrics of `lab simulate --json`."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame([row.to_json() for row in self.result.rows])

    def _shown(self) -> Group:
        return Group(self.result.table(), *map(Text, self.result.notes))


class _Simulated(OneOf):
    """A parse function of `forecasts.WAYS` that says of other experiments how to measure them."""

    def __call__(self, raw: str) -> str:
        """Return the experiment's name.

        Raises:
            InputError: It is another experiment.
            ValueError: It is no experiment.
        """
        if raw in EXPERIMENTS and raw not in self.choices:
            *others, last = self.choices
            what = f"{raw} cannot be simulated, only {', '.join(others)} and {last} of TensorFlow"
            raise InputError(what, f"measure it with `lab sweep {raw} --over workers=1,2`")
        return super().__call__(raw)


@named_extras()
def simulate(  # longer than 60 lines: each option has an argument and a line of help
    way: Annotated[str, Argument(parse=_Simulated(forecasts.WAYS))],
    *,
    from_: Annotated[AnyPath | None, Flag(shows="RUN")] = None,
    workers: Annotated[
        int | Sequence[int] | None, Flag(parse=units.counts(forecasts.MAX_WORKERS), shows="COUNTS")
    ] = None,
    ps: Annotated[
        int | Sequence[int] | None, Flag(parse=units.counts(forecasts.MAX_PS), shows="COUNTS")
    ] = None,
    cluster: Annotated[Cluster | AnyPath | None, Flag(shows="FILE")] = None,
    links: Annotated[str | None, Flag(parse=units.bytes_per_s, shows="RATE")] = None,
    network: Annotated[str | None, Flag(parse=units.bytes_per_s, shows="RATE")] = None,
    latency: Annotated[str | None, Flag(parse=units.delay_s, shows="TIME")] = None,
    cores: Annotated[int | None, Flag(parse=units.whole(1, forecasts.MAX_CORES), shows="N")] = None,
    step: Annotated[str | None, Flag(parse=units.step_s, shows="TIME")] = None,
    fault: Annotated[
        str | Sequence[str] | None, Flag(parse=parse_faults, shows="FAULTS", separator=";")
    ] = None,
    batch_size: Annotated[int, Flag(parse=units.whole(1, forecasts.MAX_BATCH), shows="N")] = 100,
    steps: Annotated[
        int, Flag(parse=units.whole(1, forecasts.MAX_STEPS), shows="N")
    ] = forecasts.STEPS,
    seed: Annotated[int, Flag(parse=units.whole(0, 2**31 - 1), shows="N")] = 0,
    beyond_validated: Annotated[bool, Switch()] = False,
    runs_dir: Annotated[AnyPath | None, Flag(shows="DIR")] = None,
) -> Simulation:
    """Predict the speed of a training by a simulation of its steps; start nothing.

    Args:
        way: async, sync or multiworker.
        from_: The run that calibrates: an id, last, or a directory (default: the shipped machine).
        workers: Numbers of workers: 1,2,6 (default: 1,2,4,8).
        ps: Numbers of parameter servers, each with each number of workers: 1,4 (default: 1).
        cluster: A cluster config that sets workers, ps and nodes.
        links: Rate of each task's link on one host: 100mbit.
        network: Each task on its own host in a network of this rate: 100gbit (default: one host).
        latency: Latency between two nodes (default: 20us with a network, else none).
        cores: CPU cores of each host (default: as the run or the shipped machine).
        step: Time of a GPU for a batch: 2ms (default: CPUs, as measured).
        fault: Workers that are slow: slow:0.5 worker-1.
        batch_size: Images in a worker's batch.
        steps: Simulated steps of all workers; more give a narrower result.
        seed: Seed of the random step times; equal seeds give equal results.
        beyond_validated: Also predict what was never validated, without a known error.
        runs_dir: The directory of the run store (default: LAB_RUNS_DIR, or ./runs).

    Raises:
        InputError: An argument is invalid, the run cannot calibrate, the config lacks a job, or a
            prediction was never validated.
        LabError: The run cannot be read.
    """
    options = forecasts.SimulateOptions(**read_options(simulate, locals()))
    return Simulation(forecasts.simulate_all(options))
