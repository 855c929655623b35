"""TensorFlow without Keras, until a program uses it.

`import tensorflow` loads Keras whether or not it is used, which takes a fifth of its time. It looks
for another Keras where `TF_USE_LEGACY_KERAS` asks for that, loads none where that is not installed,
and reads the variable again when `tf.keras` is used first. So the variable is set while TensorFlow
is imported, and taken back behind it: `tf.keras` is then what it always is.

Seen in TensorFlow 2.21, `tensorflow/__init__.py` and `tensorflow/python/util/lazy_loader.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Final

_SWITCH: Final = "TF_USE_LEGACY_KERAS"
_IS_OURS: Final = "LAB_LAZY_KERAS"


def defer_keras(environ: Mapping[str, str], tensorflow: str = "") -> dict[str, str]:
    """The variables that put it off; none where the user has chosen a Keras.

    Args:
        environ: The program's variables.
        tensorflow: The version that it has. On 2.15 nothing is put off: Horovod, which wants Keras
            at once, could not be imported behind TensorFlow.
    """
    return {} if _SWITCH in environ or tensorflow == "2.15" else {_SWITCH: "1", _IS_OURS: "1"}


def restore_keras(environ: MutableMapping[str, str]) -> None:
    """Let `tf.keras` be the installed Keras again; to be called once TensorFlow is there."""
    if environ.pop(_IS_OURS, None):
        environ.pop(_SWITCH, None)
