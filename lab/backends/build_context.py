"""The directory that an image is built from: a clone of lab, or a copy of the sources."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.base.errors import LabError
from lab.base.shipped import SHIPPED, copy_exactly
from lab.base.variables import LAB_WHEELS

DOCKERFILE: Final = "Dockerfile.gpu"
COPY: Final = Path(".lab/image")
"""The copy of the sources in a project that is not a clone."""

WHEELS: Final = "wheels"
"""The directory in it with packages that the package index does not have."""

SOURCES: Final = (DOCKERFILE, "lab", "requirements", "scripts")
"""What the tasks' image is built from, as in a clone."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What an image is built from.

    Attributes:
        folder: The directory.
        dockerfile: The Dockerfile of the tasks' image.
        is_copy: Whether lab writes the directory.
    """

    folder: Path
    dockerfile: Path
    is_copy: bool = True


def context_of(root: Path) -> BuildContext:
    """Return what the images of a project are built from.

    A clone has the sources. Another project has a copy of them. Without a project, the copy is in
    the state directory of lab: nothing may be written beside the shipped files.

    Args:
        root: The directory with the programs; see `find_root`.
    """
    own = root / DOCKERFILE
    if (root / "lab" / "base" / "image_digest.py").is_file():
        return BuildContext(root, own, is_copy=False)
    folder = root / COPY
    if root == SHIPPED:
        from lab.backends.state import state_directory  # noqa: PLC0415  (a clone needs none)

        folder = state_directory() / "image"
    is_own = root != SHIPPED and own.is_file()
    return BuildContext(folder, own if is_own else folder / DOCKERFILE)


def prepare_context(root: Path, more: Iterable[str] = ()) -> Path:
    """Write the sources of this lab, unless the project is a clone.

    Args:
        root: The directory with the programs.
        more: More sources, for another image than the tasks'.

    Returns:
        The directory that an image is built from.

    Raises:
        LabError: It cannot be written.
    """
    context = context_of(root)
    try:
        if context.is_copy:
            copy_exactly(context.folder, (*SOURCES, *more))
        _add_wheels(context.folder)
    except OSError as error:
        raise LabError(
            f"{context.folder} cannot be written ({error.strerror})",
            "change its permissions, or free some space",
        ) from error
    return context.folder


def _add_wheels(folder: Path) -> None:
    """Copy the wheels from LAB_WHEELS; `pip` installs those whose hashes are locked.

    The user's own Horovod needs no locked hash, because its hash depends on the compiler.

    They go into the build context, because the builder of Docker Engine 20.10 does not support
    named contexts.

    Raises:
        LabError: The directory has no wheel.
        OSError: They cannot be copied.
    """
    source = os.environ.get(LAB_WHEELS)
    if not source:
        return
    wheels = sorted(Path(source).glob("*.whl"))
    if not wheels:
        raise LabError(
            f"LAB_WHEELS: {source} has no wheel (*.whl)",
            "name the directory with the wheels, or unset LAB_WHEELS",
        )
    (folder / WHEELS).mkdir(exist_ok=True)
    for wheel in wheels:
        shutil.copy2(wheel, folder / WHEELS / wheel.name)
