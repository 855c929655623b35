"""TensorBoard without TensorFlow, whether that is installed or not: its import costs 3 seconds."""

from __future__ import annotations

import sys
import types
from typing import Final

_NO_TENSORFLOW: Final = "tensorboard.compat.notf"
"""The module by which TensorBoard is told to do without."""


def without_tensorflow() -> None:
    """Tell TensorBoard so; to be called before its modules that look for it are imported."""
    sys.modules.setdefault(_NO_TENSORFLOW, types.ModuleType(_NO_TENSORFLOW))
