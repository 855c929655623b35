"""Run a TensorBoard server for this host only, in this process."""

from __future__ import annotations

import logging
import sys
import types
from pathlib import Path
from typing import Final

from lab.errors import LabError

HOST: Final = "127.0.0.1"

_NO_TENSORFLOW: Final = "tensorboard.compat.notf"
"""TensorBoard does not import TensorFlow if this module exists.

The import of TensorFlow would take 3 seconds.
"""

_MAX_POINTS: Final = 10_000
"""The maximum number of points per curve; from a longer curve TensorBoard takes a sample."""


def serve(folder: Path, port: int) -> str:
    """Start the server in a thread that ends with this process.

    Args:
        folder: A directory with the runs' event files.
        port: The port; 0: any free port.

    Returns:
        The URL.

    Raises:
        LabError: The port is in use, or not permitted.
    """
    sys.modules.setdefault(_NO_TENSORFLOW, types.ModuleType(_NO_TENSORFLOW))
    # A late import: it takes a second, and needs the module above.
    from tensorboard import default, program  # noqa: PLC0415

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for each request
    # Only the static plugins: the others are code of any installed package.
    board = program.TensorBoard(default.get_static_plugins())
    board.configure(
        argv=[
            "",
            f"--logdir={folder}",
            f"--host={HOST}",
            f"--port={port}",
            # The data server would be a separate process with its own port.
            "--load_fast=false",
            f"--samples_per_plugin=scalars={_MAX_POINTS}",
            "--window_title=lab",
        ]
    )
    try:
        return str(board.launch())
    except (program.TensorBoardServerException, OSError) as error:
        raise LabError(
            f"port {port} of {HOST} cannot be used", "use another port, or leave out --port"
        ) from error
