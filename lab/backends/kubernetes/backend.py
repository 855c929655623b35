"""The Kubernetes backend."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from lab.backends.base import Backend
from lab.backends.boot import Boot
from lab.backends.environment import Environment
from lab.backends.kubernetes.planner import KubernetesPlanner
from lab.errors import InputError, LabError
from lab.placement.plan import Plan
from lab.text import short

_NOT_YET = "lab boots nothing there; render the config with `lab render --target kubernetes`"


class KubernetesBackend(KubernetesPlanner, Backend):
    """Environments as pods of Kubernetes."""

    def task_path(self, path: Path, root: Path) -> str:
        """Refuse a path: pods see no directory of this host.

        Raises:
            InputError: Always.
        """
        del root
        raise InputError(
            f"--data_dir: pods do not see {short(str(path))}",
            "build an image with the data, or use --backend local",
        )

    def unavailable_reason(self) -> str | None:
        """Why no pods can be started."""
        return _NOT_YET

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """None: only the nodes know."""

    def boot(self, plan: Plan, *, root: Path) -> Boot[Any]:
        """Refuse a boot.

        Raises:
            LabError: Always.
        """
        raise LabError(_NOT_YET)

    def projects(self) -> Collection[str]:
        """No names."""
        return ()

    def find_any(self, project: str) -> Environment | None:
        """None."""
