"""`lab predict RUN [IMAGE]`.

Examples:
    # the test set, and an image of some of its digits
    lab predict last
    # an image of your own
    lab predict last tests/golden/digits/seven.png
"""

from __future__ import annotations

from typing import Annotated

from lab.cli.arguments import Flag, Switch, Word
from lab.cli.options import AsJson, Force, RunsDir
from lab.cli.values import count as whole
from lab.errors import InputError

MOST = 100


def up_to_a_hundred(raw: str) -> int:
    """A whole number from 1 to 100: a picture with more cannot be read."""
    if not (raw.isascii() and raw.isdigit() and len(raw) < 4 and 1 <= int(raw) <= MOST):  # noqa: PLR2004
        raise ValueError(f"a whole number from 1 to {MOST}")
    return int(raw)


def command(
    *,
    run: Annotated[str, Word("a run's id, a unique beginning of it, or last")],
    image: Annotated[
        str | None, Word("a PNG of your own with one digit on it, of any size (default: none)")
    ] = None,
    count: Annotated[
        int | None, Flag("images of the test set to show (default: 24)", up_to_a_hundred)
    ] = None,
    seed: Annotated[int | None, Flag("which ones are drawn (default: 0)", whole)] = None,
    wrong: Annotated[bool, Switch("show only images that the model takes for another digit")] = (
        False
    ),
    averages: Annotated[
        bool, Switch("answer with the moving averages of the parameters (models mlp)")
    ] = False,
    data_dir: Annotated[
        str | None, Flag("another test set, in the IDX files (default: the run's)", shows="DIR")
    ] = None,
    output: Annotated[
        str | None,
        Flag("the picture to write (default: RUN/figures/digits.png, own.png)", shows="FILE"),
    ] = None,
    force: Force = False,
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Let a run's saved model answer."""
    about_test_set = wrong or any(each is not None for each in (count, seed, data_dir))
    if image is not None and about_test_set:
        raise InputError(
            "--count, --seed, --wrong and --data-dir choose among the test set",
            "leave them out with a picture of your own",
        )
    # Imported here: NumPy costs more than to refuse wrong words, or to explain the right ones.
    from lab.cli.asking import Question, ask  # noqa: PLC0415

    ask(
        Question(
            run=run,
            image=image,
            count=24 if count is None else count,
            seed=seed or 0,
            wrong=wrong,
            averages=averages,
            data_dir=data_dir,
            output=output,
            force=force,
            json=json,
            runs_dir=runs_dir_,
        )
    )
