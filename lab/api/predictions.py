"""Predict from Python: `lab predict` without its command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from lab import units
from lab.api.results import Run, named_run
from lab.errors import InputError
from lab.extras import named_extras
from lab.options import Argument, Flag, Switch, given_flags, read_options
from lab.options.shared import RunsDir
from lab.options.types import count as whole
from lab.project import AnyPath

if TYPE_CHECKING:
    from lab.predict.results import PicturePrediction, TestSetPrediction

MAX_IMAGES: Final = 100
"""The maximum number of images in a figure: more could not be read."""


@named_extras()
def predict(
    run: Annotated[Run | AnyPath, Argument()],
    image: Annotated[AnyPath | None, Argument()] = None,
    *,
    count: Annotated[int, Flag(parse=units.whole(1, MAX_IMAGES), shows="N")] = 24,
    seed: Annotated[int, Flag(parse=whole, shows="N")] = 0,
    wrong: Annotated[bool, Switch()] = False,
    averages: Annotated[bool, Switch()] = False,
    data_dir: Annotated[AnyPath | None, Flag(shows="DIR")] = None,
    output: Annotated[AnyPath | None, Flag(shows="FILE")] = None,
    force: Annotated[bool, Switch()] = False,
    runs_dir: RunsDir = None,
) -> PicturePrediction | TestSetPrediction:
    """Test a run's saved model on its test set, or on an image of your own, and draw a figure.

    Args:
        run: A run's id, a unique prefix of it, last, or last~1.
        image: A PNG file of your own with one digit, of any size (default: none).
        count: Number of images to show.
        seed: The seed that selects them.
        wrong: Show only images that the model classifies wrongly.
        averages: Use the moving averages of the parameters (model mlp).
        data_dir: Another test set: its IDX files (default: the run's).
        output: The image to write (default: digits.png or own.png in RUN/figures).
        force: Replace the file even if lab did not write it.
        runs_dir: The run store.

    Raises:
        InputError: No run matches, an image or a test set cannot be read, or the figure cannot be
            written there.
        LabError: The run has no model, or a damaged one.
    """
    given = read_options(predict, locals())
    if image is not None and given_flags(predict, given, "count", "seed", "wrong", "data_dir"):
        raise InputError(
            "--count, --seed, --wrong and --data-dir select images of the test set",
            "leave them out with an image of your own",
        )
    # Imported here: NumPy takes longer to import than wrong arguments take to report.
    from lab.predict.results import predict_picture, predict_test_set  # noqa: PLC0415

    wanted = named_run(given["run"], runs_dir)
    if image is not None:
        return predict_picture(wanted, Path(image), given["output"], averages=averages, force=force)
    return predict_test_set(
        wanted,
        given["data_dir"],
        given["output"],
        count=given["count"],
        seed=given["seed"],
        wrong=wrong,
        averages=averages,
        force=force,
    )
