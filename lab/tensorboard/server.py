"""TensorBoard as a page of this machine alone, in this process."""

from __future__ import annotations

import logging
import sys
import types
from pathlib import Path
from typing import Final

from lab.errors import LabError

HOST: Final = "127.0.0.1"

_NO_TENSORFLOW: Final = "tensorboard.compat.notf"
"""The module by which TensorBoard knows that it must do without TensorFlow.

The import of TensorFlow would take 3 seconds.
"""

_MAX_POINTS: Final = 10_000
"""So many points of a curve are shown; of more, TensorBoard draws some by lot."""


def serve(folder: Path, port: int) -> str:
    """Begin to serve, in a thread that ends with this process.

    Args:
        folder: The runs, each with its files of events.
        port: The port; 0: any that is free.

    Returns:
        The address.

    Raises:
        LabError: The port is taken, or may not be used.
    """
    sys.modules.setdefault(_NO_TENSORFLOW, types.ModuleType(_NO_TENSORFLOW))
    # Imported here: it costs a second, and looks for that module.
    from tensorboard import default, program  # noqa: PLC0415

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for each request
    # The static plugins alone: others are code of whatever package is installed.
    board = program.TensorBoard(default.get_static_plugins())
    board.configure(
        argv=[
            "",
            f"--logdir={folder}",
            f"--host={HOST}",
            f"--port={port}",
            # Without its data server, which would be a process of its own with a port of its own.
            "--load_fast=false",
            f"--samples_per_plugin=scalars={_MAX_POINTS}",
            "--window_title=lab",
        ]
    )
    try:
        return str(board.launch())
    except (program.TensorBoardServerException, OSError) as error:
        raise LabError(
            f"port {port} of {HOST} cannot be used", "name another one, or leave out --port"
        ) from error
