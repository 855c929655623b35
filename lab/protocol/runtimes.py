"""The runtimes: a framework in one version, and how it is installed.

An experiment names its runtime, and the plan has it for the backend. Containers run in an image
with the runtime, processes on a Python with it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import lab

INSTALLED_MARKER: Final = ".complete"
"""The file that make creates in a virtual environment when its installation is complete."""

# Without these two variables, a CUDA base image shows all GPUs to each container.
NO_GPU: Final = {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "-1"}

GPU_ORDER: Final = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Numbers a container's GPUs as nvidia-smi does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A framework in one version, and how it is installed.

    Attributes:
        name: Its name for `--framework` and in plans: `tensorflow-2.15`.
        title: Its name in messages: `TensorFlow 2.15`.
        extra: The extra of lab with it for the Python of lab itself; "": there is none.
        pin: The version that is installed, `2.21.*`.
        horovod: The name of the file in `requirements/` with Horovod; "" without Horovod.
        target: The target of make that creates its virtual environment, and the prefix of the
            tags of its images: `heritage` in `lab:heritage-cpu`; "": the Python of lab itself.
    """

    name: str
    title: str
    pin: str
    extra: str = ""
    horovod: str = ""
    target: str = ""

    @property
    def environment(self) -> str:
        """The directory of its virtual environment for tasks that are processes, or ""."""
        return f".venv-{self.target}" if self.target else ""

    @property
    def framework(self) -> str:
        """Its framework, a key of `lab.protocol.frameworks.FRAMEWORKS`."""
        return self.name.partition("-")[0]

    def image(self, *, gpus: bool) -> str:
        """Return the name of its image: `lab:cpu`, or `lab:cuda` for tasks with GPUs."""
        kind = "cuda" if gpus else "cpu"
        return f"lab:{self.target}-{kind}" if self.target else f"lab:{kind}"

    def requirements(self, *, gpus: bool) -> str:
        """Return the name of the file in `requirements/` that locks its image: `image-cpu`."""
        return self.image(gpus=gpus).replace("lab:", "image-")

    def python(self, root: Path) -> Path | None:
        """Find a Python with it: in its virtual environment, or that of lab itself.

        Args:
            root: The project's directory. The environment is in it or next to the package `lab`.

        Returns:
            The path of Python; None if there is none.
        """
        for folder in (root, Path(lab.__file__).parents[1]) if self.environment else ():
            environment = folder.absolute() / self.environment
            if (environment / INSTALLED_MARKER).exists():
                # Not resolved: Python finds the environment by the path of this link.
                return environment / "bin" / "python"
        is_here = bool(self.extra) and find_spec(self.framework) is not None
        return Path(sys.executable) if is_here else None


TENSORFLOW: Final = Runtime(
    name="tensorflow",
    title="TensorFlow 2.21",
    extra="tensorflow",
    pin="2.21.*",
)
HERITAGE: Final = Runtime(
    name="tensorflow-2.15",
    title="TensorFlow 2.15",
    # The last version with Estimator.
    pin="2.15.1",
    horovod="horovod",
    target="heritage",
)
TORCH: Final = Runtime(
    name="torch",
    title="PyTorch 2.13",
    extra="torch",
    pin="2.13.0",
    target="torch",
)
JAX: Final = Runtime(
    name="jax",
    title="JAX 0.10",
    extra="jax",
    pin="0.10.2",
    target="jax",
)
RUNTIMES: Final[Mapping[str, Runtime]] = {
    runtime.name: runtime for runtime in (TENSORFLOW, HERITAGE, TORCH, JAX)
}
"""The runtimes by name, the default one first."""
