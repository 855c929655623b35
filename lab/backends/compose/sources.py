"""Which version of lab's own code an image or a container holds, as it says itself."""

from __future__ import annotations

import io
import json
import re
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.backends.compose import state
from lab.backends.compose.engine import Engine, Gone, answering
from lab.task.files import write_atomically
from lab.task.sources import IN_IMAGE

if TYPE_CHECKING:
    from docker.models.containers import Container

_DIGEST: Final = re.compile(rb"[0-9a-f]{64}\n")
_DOING: Final = "asking for the version of lab in"
_MOST_CACHED: Final = 32
"""Images in the cache; a class uses two or three."""

_MOST: Final = 2**16
"""Bytes of the archive that are enough: anybody may have made the image."""


def of_image(engine: Engine, name: str, project: str) -> str:
    """The digest of lab's sources in an image.

    The engine shows files of containers only, so one is made for it, which never starts. Nothing is
    written: `lab doctor` asks, too, and leaves nothing behind.

    Args:
        engine: The engine; it holds the image.
        name: The image's name.
        project: Whose container it is, should it be left: `lab down` removes it.

    Returns:
        As `lab.task.sources` computes it; "" for an image that says none.

    Raises:
        LabError: The engine does not answer, or refused.
    """
    with answering(f"{_DOING} the image"):
        image_id = str(engine.client().images.get(name).id)
    if known := _cached().get(image_id):
        return known
    with answering(f"{_DOING} the image"):
        container = engine.create(project, image_id, ["true"], network_mode="none")
    try:
        return _read(container)
    finally:
        # A `lab down` of this project may have been faster.
        with suppress(Gone), answering(f"{_DOING} the image"):
            container.remove(v=True, force=True)


def of_container(engine: Engine, container_id: str, image_id: str) -> str:
    """The same of a container's image, whether the container runs or not; it is read once.

    Raises:
        LabError: The engine does not answer, or refused.
    """
    if known := _cached().get(image_id):
        return known
    try:
        with answering(f"{_DOING} a container"):
            container = engine.client().containers.get(container_id)
    except Gone:
        return ""
    found = _read(container)
    if found:  # that there is none may have another reason next time
        _cache_digest(image_id, found)
    return found


def _read(container: Container) -> str:
    archive = bytearray()
    try:
        with answering(f"{_DOING} a container"):
            pieces, _ = container.get_archive(IN_IMAGE)
            for piece in pieces:
                archive += piece
                if len(archive) > _MOST:
                    break
    except Gone:
        return ""
    return _first_file(bytes(archive))


def _first_file(archive: bytes) -> str:
    """The digest that an archive's first file holds; "" where it holds none."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            member = tar.next()
            file = tar.extractfile(member) if member is not None and member.isfile() else None
            text = b"" if file is None else file.read(_MOST)
    except tarfile.TarError:
        return ""
    return text.decode().strip() if _DIGEST.fullmatch(text) else ""


def _cache() -> Path:
    return state.base() / "images.json"


def _cached() -> dict[str, str]:
    """The digest of lab's sources in each image that was read before, by the image's id."""
    # Imported here: not every command asks.
    import msgspec  # noqa: PLC0415

    try:
        return msgspec.json.decode(_cache().read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, RecursionError):
        return {}


def _cache_digest(image_id: str, digest: str) -> None:
    """Cache a digest; where the cache cannot be written, the digest is read again next time."""
    newest = {**_cached(), image_id: digest}
    kept = dict(list(newest.items())[-_MOST_CACHED:])
    with suppress(OSError):
        write_atomically(_cache(), json.dumps(kept, indent=2) + "\n", durable=False)
