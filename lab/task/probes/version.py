"""Which version of lab's own code runs beside the training programs, told by its sources.

The helper and the agents speak to each other in files (`lab.task.protocol`), so that both must be
of one version. An image holds the code of the time when it was built, and agents that are up have
the code of the time when they were booted in their memory, whatever lies on the host by then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import lab

PACKAGE: Final = Path(lab.__file__).parent
"""The directory of the package `lab`, on the host as in the image."""

IN_IMAGE: Final = "/lab/sources.sha256"
"""Where an image holds the digest of its own sources, which `Dockerfile.gpu` writes."""


def sources(package: Path = PACKAGE) -> Iterator[str]:
    """What of `lab` goes into the image, in order, by the paths below the package.

    Of the data sets these are the lists of their digests, not the data. Programs (`scripts/`) are
    none of it: containers see the project's own, so that an edited one needs no new image.
    """
    yield "__init__.py"
    for folder, pattern in (("datasets", "SHA256SUMS"), ("task", "*.py")):
        found = (path.relative_to(package) for path in (package / folder).rglob(pattern))
        # Hidden ones are an editor's own.
        yield from sorted(path.as_posix() for path in found if not path.name.startswith("."))
    yield "records.py"


def digest(package: Path = PACKAGE) -> str:
    """SHA-256 of the sources' names and contents, in hexadecimal.

    It is that of the lines which `sha256sum` prints of the sources.
    """
    whole = hashlib.sha256()
    for name in sources(package):
        content = hashlib.sha256((package / name).read_bytes()).hexdigest()
        whole.update(f"{content}  {name}\n".encode())
    return whole.hexdigest()


if __name__ == "__main__":
    print(digest())
