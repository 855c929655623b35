"""The version of lab's code in an environment, as a digest of its sources.

The client and the agents exchange files (`lab.protocol.volume`), so both must have the same
version. An image contains the code from the time of its build, and running agents have the code
from the time of their boot. The code on the host may be newer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import lab

PACKAGE: Final = Path(lab.__file__).parent
"""The directory of the package `lab`, on the host and in the image."""

LABEL: Final = "lab.sources-sha256"
"""The label of an image with the digest of its sources; a container has it, too."""

BUILD_ARGUMENT: Final = "SOURCES_SHA256"
"""The argument of a build with the digest, for the label."""

ROOMS: Final = ("base", "protocol", "task")
"""The packages of `lab` in the image, as `Dockerfile.gpu` copies them."""


def sources(package: Path = PACKAGE) -> Iterator[str]:
    """The files of `lab` in the image, as ordered paths relative to the package.

    For data sets these are only the lists of digests. Programs (`scripts/`) are not included:
    containers use the project's own files, so an edited program needs no new image.
    """
    yield "__init__.py"
    for room in ROOMS:
        paths = (path.relative_to(package) for path in (package / room).rglob("*"))
        # Hidden files belong to an editor.
        yield from sorted(
            path.as_posix()
            for path in paths
            if (path.suffix == ".py" or path.name == "SHA256SUMS") and path.name[0] != "."
        )


def digest(package: Path = PACKAGE) -> str:
    """SHA-256 of the sources' names and contents, in hexadecimal.

    It is the digest of the lines that `sha256sum` prints for the sources.
    """
    whole = hashlib.sha256()
    for name in sources(package):
        content = hashlib.sha256((package / name).read_bytes()).hexdigest()
        whole.update(f"{content}  {name}\n".encode())
    return whole.hexdigest()


if __name__ == "__main__":
    print(digest())
