"""The frameworks of training programs: variables, defaults, names.

The image contains them: the agents set the variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Final

from lab.protocol.frameworks.framework import Framework, Rank
from lab.protocol.frameworks.jax import JAX
from lab.protocol.frameworks.torch import TORCH

__all__ = ["FRAMEWORKS", "JAX", "TENSORFLOW", "TORCH", "Framework", "Rank", "framework_of"]

TENSORFLOW: Final = Framework(
    name="tensorflow",
    title="TensorFlow",
    modules=("tensorflow", "keras", "tf_slim", "horovod"),
    packages=("tensorflow", "tensorflow-cpu", "horovod"),
    # `AbortedError: Cleanup 2096…` is how a step ends in the tasks beside the one that failed.
    lost_peer=re.compile(r"AbortedError: |UnavailableError: (?!Error executing)|RecvAsync is"),
)
"""TensorFlow: tasks find each other by TF_CONFIG or by their flags."""

FRAMEWORKS: Final[Mapping[str, Framework]] = {each.name: each for each in (TENSORFLOW, TORCH, JAX)}
"""The frameworks by name, the default one first."""


def framework_of(packages: Set[str]) -> Framework:
    """Return the framework of a program, by the packages that it imports.

    TensorFlow is the default. Many programs of JAX read their data with it.
    """
    others = (framework for framework in FRAMEWORKS.values() if framework is not TENSORFLOW)
    imported = (framework for framework in others if not packages.isdisjoint(framework.modules))
    return next(imported, TENSORFLOW)
