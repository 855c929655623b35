"""TensorFlow: tasks find each other by TF_CONFIG or by their flags."""

from __future__ import annotations

import re
from typing import Final

from lab.frameworks.framework import Framework

TENSORFLOW: Final = Framework(
    name="tensorflow",
    title="TensorFlow",
    modules=("tensorflow", "keras", "tf_slim", "horovod"),
    packages=("tensorflow", "tensorflow-cpu", "horovod"),
    # `AbortedError: Cleanup 2096…` is how a step ends in the tasks beside the one that failed.
    lost_peer=re.compile(r"AbortedError: |UnavailableError: (?!Error executing)|RecvAsync is"),
)
