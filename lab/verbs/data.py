"""`lab data KIND [FILE]`.

tfrecords: the training images as tf.train.Example with the features image_raw
(784 bytes), label, pixels, height and width. `lab run --listing` copies such a file
together with the program.

Examples:
    # output.tfrecords in this directory
    lab data tfrecords
    # another name
    lab data tfrecords digits.tfrecord
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lab.base.converters import one_of
from lab.base.errors import InputError
from lab.base.files import check_output, write_output
from lab.base.log import LOG
from lab.base.options import Argument, Flag, verb
from lab.cluster.project import check_data_dir
from lab.verbs.common_options import Force


@verb
def data(
    kind: Annotated[str, Argument("the format: tfrecords", one_of("tfrecords"))],
    file: Annotated[str, Argument("the file to write (default: output.tfrecords)")] = (
        "output.tfrecords"
    ),
    *,
    data_dir: Annotated[
        str | None, Flag("a directory with your own data: the four IDX files", shows="DIR")
    ] = None,
    force: Force = False,
) -> None:
    """Write MNIST's training images as a TFRecord file."""
    # Imported here: NumPy takes longer to import than wrong arguments take to report.
    from lab.protocol.mnist import DataError, load_mnist  # noqa: PLC0415
    from lab.study.tfrecords import encode_examples, is_tfrecords  # noqa: PLC0415

    path = Path(file)
    check_output(kind, path, is_tfrecords, force=force)
    folder = check_data_dir(data_dir)
    try:
        train = load_mnist(folder).train
    except DataError as error:
        raise InputError(error.what, error.fix) from error
    data = encode_examples(train)
    write_output(path, data)
    LOG.info(f"wrote {file}: {len(train):,} examples, {len(data) / (1 << 20):,.0f} MiB")


command = data
