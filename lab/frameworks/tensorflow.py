"""TensorFlow: tasks find each other by TF_CONFIG or by their flags."""

from __future__ import annotations

from typing import Final

from lab.frameworks.framework import Framework

TENSORFLOW: Final = Framework(
    name="tensorflow",
    title="TensorFlow",
    modules=("tensorflow", "keras", "tf_slim", "horovod"),
    packages=("tensorflow", "tensorflow-cpu", "horovod"),
)
