"""The images: which TensorFlow the tasks' programs run on, and what is installed for it.

An experiment says which version it needs, and the plan carries it to whatever boots it: containers
run in an image of that version, processes on a Python that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lab

INSTALLED_MARKER: Final = ".complete"
"""What make leaves in a virtual environment when all of it is installed."""


@dataclass(frozen=True, slots=True)
class TensorFlowVersion:
    """One choice of TensorFlow.

    Attributes:
        tensorflow: Its version as experiments name it, `2.21`.
        prefix: What the names of its images begin with: `heritage-` in `lab:heritage-cpu`.
        pin: The version that pip installs, `2.21.*`.
        horovod: What pip installs of Horovod, or "".
        variable: Begins the names of the variables that choose something else: `LAB_IMAGE`.
        environment: The virtual environment that has it where tasks are processes; "" where it is
            the lab's own Python.
        target: The target of make that makes this environment.
    """

    tensorflow: str
    prefix: str
    pin: str
    horovod: str
    variable: str
    environment: str
    target: str

    def name(self, *, gpus: bool) -> str:
        """`lab:cpu`, or `lab:cuda` for tasks with cards."""
        return f"lab:{self.prefix}{'cuda' if gpus else 'cpu'}"

    def requirement(self, *, gpus: bool) -> str:
        """What pip installs of TensorFlow."""
        return f"{'tensorflow[and-cuda]' if gpus else 'tensorflow-cpu'}=={self.pin}"

    def python(self, root: Path) -> Path | None:
        """The Python of its virtual environment: the project's, else the one beside `lab` itself.

        Args:
            root: The project's directory.

        Returns:
            None where neither is there.
        """
        for folder in (root, Path(lab.__file__).parents[1]):
            environment = folder.absolute() / self.environment
            if (environment / INSTALLED_MARKER).exists():
                # Not resolved: it is the link itself that makes Python find the environment.
                return environment / "bin" / "python"
        return None


CURRENT: Final = TensorFlowVersion(
    tensorflow="2.21",
    prefix="",
    pin="2.21.*",
    horovod="",
    variable="LAB",
    environment="",
    target="",
)
TF1: Final = TensorFlowVersion(
    tensorflow="2.15",
    prefix="heritage-",
    # 2.15 is the last with Estimator; 2.15.0 asks for a TensorRT that PyPI does not have.
    pin="2.15.1",
    horovod="horovod==0.28.1",
    variable="LAB_HERITAGE",
    environment=".venv-heritage",
    target="heritage",
)
IMAGES: Final[Mapping[str, TensorFlowVersion]] = {each.tensorflow: each for each in (CURRENT, TF1)}
"""By the version that an experiment names."""
