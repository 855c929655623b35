"""Run a program that was printed in 2017 or 2018: `python -m lab.task.heritage PROGRAM [WORDS]`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from lab.task.heritage.importing import provide, tensorflow_1
from lab.task.heritage.polls import shorten_polls


def main() -> None:
    """Run it as `python PROGRAM WORDS` would, with TensorFlow 1's API."""
    sys.argv = sys.argv[1:]
    program = Path(sys.argv[0]).resolve()
    sys.path[0] = str(program.parent)
    provide(program.parent, tensorflow_1())
    shorten_polls()
    runpy.run_path(str(program), run_name="__main__")


main()
