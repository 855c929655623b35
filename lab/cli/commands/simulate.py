"""`lab simulate WAY`.

No model is trained. Every figure is a prediction for softmax regression on MNIST, with
the error that such predictions had. docs/explanation/scaling.md has the measurements. --from RUN
calibrates on a run of your own machine, such as --from last; without it, the shipped
machine is simulated. What was never validated needs --beyond-validated, and has no known
error.

Examples:
    # the shipped machine with more workers
    lab simulate async --workers 2,4,8
    # a slow worker, whose error may not be known
    lab simulate sync --workers 4 --fault "slow:0.5 worker-1" --beyond-validated
    # a host for each task, and GPUs that take 2 ms for a batch
    lab simulate async --workers 8,64 --network 100gbit --step 2ms --beyond-validated
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
    simulation = simulated().result
    if json:
        print_json(simulation.to_json())
        return
    show(simulation.table())
    for line in simulation.notes:
        LOG.info(line)
