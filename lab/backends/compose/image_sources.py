"""The version of lab's code in an image, or in the image of a container."""

from __future__ import annotations

import io
import json
import re
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.backends.engine.client import Engine, NotFound, engine_errors
from lab.backends.state import state_directory
from lab.image_digest import IN_IMAGE
from lab.volume.files import write_atomically

if TYPE_CHECKING:
    from docker.models.containers import Container

_DIGEST: Final = re.compile(rb"[0-9a-f]{64}\n")
_DOING: Final = "reading the version of lab in"
_MAX_CACHED: Final = 32
"""The number of images in the cache; a class uses two or three."""

_MAX_BYTES: Final = 2**16
"""The number of bytes of an archive that are read: the image is untrusted."""


def image_digest(engine: Engine, name: str, project: str) -> str:
    """Return the digest of lab's sources in an image.

    The engine reads files of containers only. So this function creates a container, reads the
    digest, and removes the container. The container never starts. The cache is not written, because
    `lab doctor` must not change files.

    Args:
        engine: The engine; it has the image.
        name: The image's name.
        project: The project of the container, so that `lab down` removes it if it is left.

    Returns:
        The digest as `lab.image_digest` computes it; "" if the image has none.

    Raises:
        LabError: The engine does not answer, or refused.
    """
    with engine_errors(f"{_DOING} the image"):
        image_id = str(engine.client().images.get(name).id)
    if known := _cached().get(image_id):
        return known
    with engine_errors(f"{_DOING} the image"):
        container = engine.create(project, image_id, ["true"], network_mode="none")
    try:
        return _read(container)
    finally:
        # A `lab down` of this project may have removed it already.
        with suppress(NotFound), engine_errors(f"{_DOING} the image"):
            container.remove(v=True, force=True)


def container_digest(engine: Engine, container_id: str, image_id: str) -> str:
    """Return the digest in a container's image, and cache it. The container may be stopped.

    Raises:
        LabError: The engine does not answer, or refused.
    """
    if known := _cached().get(image_id):
        return known
    try:
        with engine_errors(f"{_DOING} a container"):
            container = engine.client().containers.get(container_id)
    except NotFound:
        return ""
    found = _read(container)
    if found:  # a missing digest is not cached: it may be readable next time
        _cache_digest(image_id, found)
    return found


def _read(container: Container) -> str:
    archive = bytearray()
    try:
        with engine_errors(f"{_DOING} a container"):
            pieces, _ = container.get_archive(IN_IMAGE)
            for piece in pieces:
                archive += piece
                if len(archive) > _MAX_BYTES:
                    break
    except NotFound:
        return ""
    return _first_file(bytes(archive))


def _first_file(archive: bytes) -> str:
    """The digest in the first file of an archive; "" if there is none."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            member = tar.next()
            file = tar.extractfile(member) if member is not None and member.isfile() else None
            text = b"" if file is None else file.read(_MAX_BYTES)
    except tarfile.TarError:
        return ""
    return text.decode().strip() if _DIGEST.fullmatch(text) else ""


def _cache() -> Path:
    return state_directory() / "compose" / "images.json"


def _cached() -> dict[str, str]:
    """The cached digests of lab's sources, by image id."""
    # Imported here: few commands need it.
    import msgspec  # noqa: PLC0415

    try:
        return msgspec.json.decode(_cache().read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, RecursionError):
        return {}


def _cache_digest(image_id: str, digest: str) -> None:
    """Cache a digest. If the cache cannot be written, the digest is read again next time."""
    newest = {**_cached(), image_id: digest}
    kept = dict(list(newest.items())[-_MAX_CACHED:])
    with suppress(OSError):
        write_atomically(_cache(), json.dumps(kept, indent=2) + "\n", durable=False)
