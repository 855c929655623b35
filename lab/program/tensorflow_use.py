"""Find out from its source what a program needs of TensorFlow and of the cluster."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from lab.program.python_source import imports_horovod, uses_estimator
from lab.tf_versions import TF1

_WITH_PS: Final = frozenset(
    {"ParameterServerStrategy", "ParameterServerStrategyV1", "ParameterServerStrategyV2"}
)
STRATEGIES: Final = _WITH_PS | {"MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy"}
"""TensorFlow's strategies for several tasks."""

_FIT: Final = frozenset({"fit", "fit_generator"})


@dataclass(frozen=True, slots=True)
class Need:
    """Why a program needs `TF1`, TensorFlow's last version with Keras 2.

    Attributes:
        what: What the program does: `imports Horovod`.
        fault: What happens with another version, after `which`; `{}` stands for that version.
    """

    what: str
    fault: str

    def notice(self, program: str, tensorflow: str, *, chosen: bool) -> str:
        """Return the notice about the version that a program runs with; "" if there is none.

        Args:
            program: The program's name.
            tensorflow: The version.
            chosen: Whether the user has chosen it.
        """
        if tensorflow != TF1.tensorflow:
            fault = self.fault.format(tensorflow)
            return f"{program} {self.what}, which {fault}; use --tensorflow {TF1.tensorflow}"
        return "" if chosen else f"{program} {self.what}: it runs with TensorFlow {tensorflow}"


def needed_tf1(trees: Mapping[Path, ast.Module], tasks: int) -> Need | None:
    """Return why a program needs `TF1`; None if it runs with TensorFlow's newest version.

    Args:
        trees: The syntax trees of the program and of the modules that it imports.
        tasks: The number of tasks in the cluster.
    """
    if imports_horovod(trees):
        return Need("imports Horovod", "TensorFlow {} lacks: its tasks form no ring")
    if uses_estimator(trees.values()):
        return Need("uses Estimator", "TensorFlow {} lacks")
    # Keras 3 has no parameter servers, and its `fit` does not accept the inputs of several workers.
    if tasks > 1 and _fits_in_strategy(trees):
        return Need("calls Keras's fit in a strategy for several tasks", "fails in TensorFlow {}")
    return None


def has_coordinator(trees: Mapping[Path, ast.Module]) -> bool:
    """Return whether a chief assigns all steps: its workers serve, and never end by themselves.

    This is TensorFlow 2's ParameterServerStrategy. Estimator's workers train and end.

    Args:
        trees: The syntax trees of the program and of the modules that it imports.
    """
    names = _names(trees)
    has_strategy = not names.isdisjoint(_WITH_PS) and not uses_estimator(trees.values())
    return has_strategy or "ClusterCoordinator" in names


def _fits_in_strategy(trees: Mapping[Path, ast.Module]) -> bool:
    """Whether a program uses a strategy for several tasks, and calls `fit`."""
    nodes = chain.from_iterable(map(ast.walk, trees.values()))
    fits = any(isinstance(n, ast.Call) and getattr(n.func, "attr", "") in _FIT for n in nodes)
    return fits and not _names(trees).isdisjoint(STRATEGIES)


def _names(trees: Mapping[Path, ast.Module]) -> set[str | None]:
    nodes = chain.from_iterable(map(ast.walk, trees.values()))
    return {
        getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
        for node in nodes
    }
