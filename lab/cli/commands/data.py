"""`lab data KIND [FILE]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lab.cli.arguments import Flag, Word
from lab.cli.options import Force
from lab.cli.values import one_of
from lab.console import say
from lab.errors import InputError
from lab.outputs import check_output, write_output
from lab.run.project import check_data_dir


def command(
    *,
    kind: Annotated[str, Word("what to write: tfrecords", one_of("tfrecords"))],
    file: Annotated[str, Word("the file to write (default: output.tfrecords)")] = (
        "output.tfrecords"
    ),
    data_dir: Annotated[
        str | None, Flag("your own data, in the four IDX files", shows="DIR")
    ] = None,
    force: Force = False,
) -> None:
    """Write MNIST's training images in the format that a printed program reads."""
    # Imported here: NumPy costs more than to refuse wrong arguments.
    from lab.task.data import DataError, load_mnist  # noqa: PLC0415
    from lab.tfrecords import is_ours, tfrecords  # noqa: PLC0415

    path = Path(file)
    check_output(kind, path, is_ours, force=force)
    folder = check_data_dir(data_dir)
    try:
        train = load_mnist(folder).train
    except DataError as error:
        raise InputError(error.what, error.mend) from error
    data = tfrecords(train)
    write_output(path, data)
    say(f"{file} is written: {len(train):,} examples, {len(data) / (1 << 20):,.0f} MiB")
