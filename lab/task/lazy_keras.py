"""Import TensorFlow without Keras until the program uses Keras.

`import tensorflow` always loads Keras, which takes a third of the import's time. With
`TF_USE_LEGACY_KERAS` TensorFlow looks for the legacy Keras instead. If that is not installed, it
loads no Keras. It reads the variable again at the first use of `tf.keras`. So `lab` sets the
variable during the import and removes it afterwards: `tf.keras` is then the installed Keras.

Sources in TensorFlow 2.21: `tensorflow/__init__.py`, `tensorflow/python/util/lazy_loader.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Final

from lab.base.variables import LAB_LAZY_KERAS

_SWITCH: Final = "TF_USE_LEGACY_KERAS"


def defer_keras(environ: Mapping[str, str], runtime: str = "") -> dict[str, str]:
    """Return the variables that defer Keras; none if the user has chosen a Keras.

    Args:
        environ: The program's environment variables.
        runtime: The runtime. On `tensorflow-2.15` nothing is deferred: Horovod needs Keras when it
            is imported.
    """
    return (
        {}
        if _SWITCH in environ or runtime == "tensorflow-2.15"
        else {_SWITCH: "1", LAB_LAZY_KERAS: "1"}
    )


def restore_keras(environ: MutableMapping[str, str]) -> None:
    """Make `tf.keras` the installed Keras again; call this after the import of TensorFlow."""
    if environ.pop(LAB_LAZY_KERAS, None):
        environ.pop(_SWITCH, None)
