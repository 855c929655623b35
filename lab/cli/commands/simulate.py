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

from lab.api.simulations import simulate
from lab.cli.printing import prints

command = prints(simulate)
