"""`lab predict RUN [IMAGE]`.

Examples:
    # the accuracy on the test set, and an image of some digits
    lab predict last
    # an image of your own
    lab predict last tests/golden/digits/seven.png
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.text import Text

from lab.api.predictions import predict
from lab.console import print_json
from lab.formatting import counted
from lab.log import LOG
from lab.options import presents
from lab.options.shared import AsJson
from lab.text import visible

if TYPE_CHECKING:
    from lab.predict.results import PicturePrediction, TestSetPrediction


@presents(predict)
def command(
    predicted: Callable[[], PicturePrediction | TestSetPrediction], *, json: AsJson = False
) -> None:
    """Test a run's saved model."""
    found = predicted()
    # Imported here: importing NumPy takes longer than to report wrong arguments.
    from lab.predict.results import TestSetPrediction  # noqa: PLC0415

    if isinstance(found, TestSetPrediction) and found.mismatch:
        LOG.info(found.mismatch)
    if json:
        print_json(found.to_json())
    elif isinstance(found, TestSetPrediction):
        _show_test_set(found)
    else:
        _show_picture(found)


def _show_picture(found: PicturePrediction) -> None:
    from lab.predict.terminal import Screen  # noqa: PLC0415

    screen = Screen()
    screen.show(
        Text(visible(found.model.headline)),
        Text(visible(f"{found.picture}: {found.predicted}"), "bold"),
        Text(),
    )
    screen.picture(found.image, found.probabilities)
    LOG.info(f"the model's input: {found.output}")


def _show_test_set(found: TestSetPrediction) -> None:
    from lab.predict.terminal import Screen, scores_table  # noqa: PLC0415

    screen = Screen()
    recorded = "" if found.recorded is None else f"  (the run recorded {found.recorded:.4f})"
    screen.show(
        Text(visible(found.model.headline)),
        Text(f"{found.headline}{recorded}"),
        Text(),
        scores_table(found.evaluation.scores()),
        Text(),
    )
    if found.answers:
        screen.digits(list(found.answers.values()), list(found.answers))
        LOG.info(f"{counted(len(found.answers), 'digit')}: {found.output}")
    else:
        LOG.info("the model classifies every image correctly: no image to show")
