"""`lab data KIND [FILE]`.

tfrecords: the training images as tf.train.Example with the features image_raw (784 bytes), label,
pixels, height and width. `lab run --listing` copies the file along with the program.

Examples:
    # write output.tfrecords in this directory
    lab data tfrecords
    # under another name
    lab data tfrecords digits.tfrecord
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lab.base.converters import one_of
from lab.base.errors import InputError
from lab.base.files import check_output, write_output
from lab.base.options import Argument, verb
from lab.cluster.project import AnyPath, check_data_dir
from lab.verbs.common_options import DataDir, Force
from lab.verbs.printing import Note, Shown, prints


@dataclass(frozen=True, slots=True, repr=False)
class Written(Shown):
    """A data file that was written.

    Attributes:
        file: The file.
        examples: The number of images in it.
        bytes: Its size.
    """

    file: Path
    examples: int
    bytes: int

    def _shown(self) -> Iterator[Note]:
        size = f"{self.bytes / (1 << 20):,.0f} MiB"
        yield Note(f"wrote {self.file}: {self.examples:,} examples, {size}")


@verb
def data(
    kind: Annotated[str, Argument("the format: tfrecords", one_of("tfrecords"))],
    file: Annotated[AnyPath, Argument("the file to write (default: output.tfrecords)")] = (
        "output.tfrecords"
    ),
    *,
    data_dir: DataDir = None,
    force: Force = False,
) -> Written:
    """Write MNIST's training images as a TFRecord file."""
    # Imported here: NumPy takes longer to import than wrong arguments take to report.
    from lab.protocol.mnist import DataError, load_mnist  # noqa: PLC0415
    from lab.study.tfrecords import encode_examples, is_tfrecords  # noqa: PLC0415

    path = Path(file)
    check_output(kind, path, is_tfrecords, force=force)
    folder = check_data_dir(None if data_dir is None else str(data_dir))
    try:
        train = load_mnist(folder).train
    except DataError as error:
        raise InputError(error.what, error.fix) from error
    data = encode_examples(train)
    write_output(path, data)
    return Written(path, len(train), len(data))


command = prints(data)
