"""`lab predict RUN [IMAGE]`.

Examples:
    # the accuracy on the test set, and an image of some digits
    lab predict last
    # an image of your own
    lab predict last tests/golden/digits/seven.png
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from lab.console import print_json
from lab.errors import InputError
from lab.formatting import counted
from lab.log import LOG
from lab.options import Argument, Flag, Switch
from lab.options.shared import AsJson, Force, RunsDir
from lab.options.types import count as whole
from lab.store.directory import runs_dir
from lab.store.names import find_run
from lab.text import visible

if TYPE_CHECKING:
    from lab.service.predict import PicturePrediction, TestSetPrediction

MAX_IMAGES = 100


def up_to_a_hundred(raw: str) -> int:
    """Parse a whole number from 1 to 100: an image with more digits cannot be read."""
    if not (raw.isascii() and raw.isdigit() and len(raw) < 4 and 1 <= int(raw) <= MAX_IMAGES):  # noqa: PLR2004
        raise ValueError(f"a whole number from 1 to {MAX_IMAGES}")
    return int(raw)


def command(  # longer than 60 lines: the parameters are the command line
    *,
    run: Annotated[str, Argument("a run's id, a unique prefix of it, last, or last~1")],
    image: Annotated[
        str | None, Argument("a PNG file of your own with one digit, of any size (default: none)")
    ] = None,
    count: Annotated[
        int | None, Flag("number of images to show (default: 24)", up_to_a_hundred, shows="N")
    ] = None,
    seed: Annotated[
        int | None, Flag("the seed that selects them (default: 0)", whole, shows="N")
    ] = None,
    wrong: Annotated[bool, Switch("show only images that the model classifies wrongly")] = (False),
    averages: Annotated[
        bool, Switch("use the moving averages of the parameters (model mlp)")
    ] = False,
    data_dir: Annotated[
        str | None, Flag("another test set: its IDX files (default: the run's)", shows="DIR")
    ] = None,
    output: Annotated[
        str | None,
        Flag("the image to write (default: digits.png or own.png in RUN/figures)", shows="FILE"),
    ] = None,
    force: Force = False,
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Test a run's saved model."""
    about_test_set = wrong or any(each is not None for each in (count, seed, data_dir))
    if image is not None and about_test_set:
        raise InputError(
            "--count, --seed, --wrong and --data-dir select images of the test set",
            "leave them out with an image of your own",
        )
    # Imported here: NumPy takes longer to import than wrong arguments take to report.
    from lab.service.predict import predict_picture, predict_test_set  # noqa: PLC0415

    wanted = find_run(run, runs_dir(runs_dir_))
    if image is not None:
        picture = predict_picture(wanted, Path(image), output, averages=averages, force=force)
        if json:
            print_json(picture.to_json())
        else:
            _show_picture(picture)
        return
    found = predict_test_set(
        wanted,
        data_dir,
        output,
        count=24 if count is None else count,
        seed=seed or 0,
        wrong=wrong,
        averages=averages,
        force=force,
    )
    if found.mismatch:
        LOG.warning(found.mismatch)
    if json:
        print_json(found.to_json())
    else:
        _show_test_set(found)


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
