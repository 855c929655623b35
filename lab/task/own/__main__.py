"""Start a user's own program as Python itself does, with what it needs to run unchanged.

    python -m lab.task.own PROGRAM [ARGUMENTS]
    python -m lab.task.own -m MODULE [ARGUMENTS]

It adds the shipped images for `keras.datasets.mnist`. It does not import TensorFlow.
"""

from __future__ import annotations

import sys

from lab.task.own import keras_mnist
from lab.task.own.main_module import exit_with_traceback, run_file, run_module


def main() -> None:
    """Run the program; end with its exit code."""
    first, *arguments = sys.argv[1:]
    keras_mnist.provide()
    for name in [each for each in sys.modules if each.partition(".")[0] == "lab"]:
        # A module of the program may have the name `lab`.
        del sys.modules[name]
    try:
        if first == "-m":
            run_module(arguments[0], arguments[1:])
        else:
            run_file(first, arguments)
    except Exception as error:  # noqa: BLE001  (Python would report any of them)
        exit_with_traceback(error)


main()
