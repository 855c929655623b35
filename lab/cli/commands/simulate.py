"""`lab simulate WAY`.

No model is trained. Every figure is a prediction for softmax regression on MNIST, with
the error that such predictions had. docs/explanation/scaling.md has the measurements. --from RUN
calibrates on a run of your own machine, such as --from last, and predicts up to three times its
tasks; without it, the shipped machine is simulated.

Examples:
    # the shipped machine with more workers
    lab simulate async --workers 2,4,6
    # other step times
    lab simulate sync --workers 4 --seed 1
"""

from __future__ import annotations

from collections.abc import Callable

from lab.api.simulations import Simulation, simulate
from lab.console import print_json
from lab.log import LOG
from lab.options import presents
from lab.options.shared import AsJson
from lab.tables import show


@presents(simulate)
def command(simulated: Callable[[], Simulation], *, json: AsJson = False) -> None:
    """Predict the speed of a training, with the error of such predictions."""
    simulation = simulated()
    if json:
        print_json(simulation.to_json())
        return
    show(simulation.table())
    for line in simulation.notes:
        LOG.info(line)
