"""The directory that an image is built from: a clone of lab, or a copy of the sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.backends.state import state_directory
from lab.errors import LabError
from lab.shipped import SHIPPED, copy_exactly

DOCKERFILE: Final = "Dockerfile.gpu"
COPY: Final = Path(".lab/image")
"""The copy of the sources in a project that is no clone."""

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
    if (root / "lab" / "image_digest.py").is_file():
        return BuildContext(root, own, is_copy=False)
    folder = state_directory() / "image" if root == SHIPPED else root / COPY
    is_own = root != SHIPPED and own.is_file()
    return BuildContext(folder, own if is_own else folder / DOCKERFILE)


def prepare_context(root: Path, more: Iterable[str] = ()) -> Path:
    """Write the sources of this lab, unless the project is a clone.

    Args:
        root: The directory with the programs.
        more: What another image is built from, beside the sources of the tasks' image.

    Returns:
        The directory that an image is built from.

    Raises:
        LabError: It cannot be written.
    """
    context = context_of(root)
    if context.is_copy:
        try:
            copy_exactly(context.folder, (*SOURCES, *more))
        except OSError as error:
            raise LabError(
                f"{context.folder} cannot be written ({error.strerror})",
                "change its permissions, or make room",
            ) from error
    return context.folder
