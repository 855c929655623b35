"""The TensorFlow versions of programs, and how each is installed.

An experiment names the version that it needs, and the plan has it for the backend. Containers run
in an image with that version, processes on a Python with that version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lab
from lab.variables import (
    LAB_HERITAGE_IMAGE,
    LAB_HERITAGE_TENSORFLOW,
    LAB_IMAGE,
    LAB_TENSORFLOW,
)

INSTALLED_MARKER: Final = ".complete"
"""The file that make creates in a virtual environment when its installation is complete."""


@dataclass(frozen=True, slots=True)
class TensorFlowVersion:
    """A version of TensorFlow, and how it is installed.

    Attributes:
        tensorflow: The version as experiments name it, `2.21`.
        prefix: The prefix of the tags of its images: `heritage-` in `lab:heritage-cpu`.
        pin: The version that is installed, `2.21.*`.
        horovod: The name of the file in `requirements/` with Horovod; "" without Horovod.
        image_variable: The environment variable that names another image.
        version_variable: The environment variable that names another version.
        environment: The directory of the virtual environment for tasks that are processes; "" for
            the Python of lab itself.
        target: The target of make that creates this environment.
    """

    tensorflow: str
    prefix: str
    pin: str
    horovod: str
    image_variable: str
    version_variable: str
    environment: str
    target: str

    def name(self, *, gpus: bool) -> str:
        """Return the name of its image: `lab:cpu`, or `lab:cuda` for tasks with GPUs."""
        return f"lab:{self.prefix}{'cuda' if gpus else 'cpu'}"

    def requirements(self, *, gpus: bool) -> str:
        """Return the name of the file in `requirements/` that locks its image: `image-cpu`."""
        return self.name(gpus=gpus).replace("lab:", "image-")

    def python(self, root: Path) -> Path | None:
        """Find the Python of its virtual environment, in the project or next to the package `lab`.

        Args:
            root: The project's directory.

        Returns:
            The path of Python; None if neither environment is installed.
        """
        for folder in (root, Path(lab.__file__).parents[1]):
            environment = folder.absolute() / self.environment
            if (environment / INSTALLED_MARKER).exists():
                # Not resolved: Python finds the environment by the path of this link.
                return environment / "bin" / "python"
        return None


CURRENT: Final = TensorFlowVersion(
    tensorflow="2.21",
    prefix="",
    pin="2.21.*",
    horovod="",
    image_variable=LAB_IMAGE,
    version_variable=LAB_TENSORFLOW,
    environment="",
    target="",
)
TF1: Final = TensorFlowVersion(
    tensorflow="2.15",
    prefix="heritage-",
    # The last version with Estimator.
    pin="2.15.1",
    horovod="horovod",
    image_variable=LAB_HERITAGE_IMAGE,
    version_variable=LAB_HERITAGE_TENSORFLOW,
    environment=".venv-heritage",
    target="heritage",
)
IMAGES: Final[Mapping[str, TensorFlowVersion]] = {each.tensorflow: each for each in (CURRENT, TF1)}
"""The versions, by the name that experiments use."""
