"""The tasks' image: its name, base and size, the version of lab's code in it, and its build."""

from __future__ import annotations

import io
import json
import re
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.backends.compose.cli import Compose, require_builder
from lab.backends.engine.client import Engine, NotFound, engine_errors
from lab.backends.state import state_directory
from lab.errors import LabError, Notify
from lab.image_digest import IN_IMAGE, PACKAGE, digest
from lab.placement.plan import Plan
from lab.render import compose as render
from lab.text import short, visible
from lab.tf_versions import IMAGES
from lab.volume.files import write_atomically

if TYPE_CHECKING:
    from docker.models.containers import Container

_DIGEST: Final = re.compile(rb"[0-9a-f]{64}\n")
_DOING: Final = "reading the version of lab in"
_MAX_CACHED: Final = 32
"""The number of images in the cache; a class uses two or three."""

_MAX_BYTES: Final = 2**16
"""The number of bytes of an archive that are read: the image is untrusted."""


@dataclass(frozen=True, slots=True)
class Image:
    """The image of the tasks.

    Attributes:
        service: The first service that builds it.
        name: `lab:cpu`.
        base: Its base image, `python:3.11-slim-bookworm`.
        requirements: The name of the file in `requirements/` with its packages, `image-cpu`.
        tensorflow: pip's requirement for another TensorFlow, which is not locked; or "".
        horovod: The name of the file in `requirements/` with Horovod, or "".
    """

    service: str
    name: str
    base: str
    requirements: str
    tensorflow: str = ""
    horovod: str = ""


def image_of(config: dict[str, Any]) -> Image:
    """Return the image of a rendered file, as compose reads it.

    Raises:
        ValueError: No service builds an image.
    """
    for name, service in config["services"].items():
        if "build" in service:
            arguments = service["build"]["args"]
            return Image(
                name,
                service["image"],
                arguments["BASE_IMAGE"],
                arguments["REQUIREMENTS"],
                arguments["TENSORFLOW"],
                arguments.get("HOROVOD", ""),
            )
    raise ValueError("no service of the rendered file builds an image")


def image_exists(engine: Engine, name: str) -> bool:
    """Whether the engine has an image of this name.

    Raises:
        LabError: The engine does not answer.
    """
    try:
        # The engine's filter of names does not find NAME:TAG@DIGEST.
        with engine_errors("looking for the image"):
            engine.client().images.get(name)
    except NotFound:
        return False
    return True


def can_pull(engine: Engine, name: str) -> bool:
    """Whether the engine can pull an image of this name from a registry."""
    try:
        with engine_errors("querying the registry"):
            engine.client().images.get_registry_data(name)
    except LabError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one TensorFlow build, measured on x86-64.

    Attributes:
        what: Its description for the user.
        download_mb: Megabytes (10⁶ bytes) of wheels.
        image_mb: Megabytes of the whole image.
    """

    what: str
    download_mb: int
    image_mb: int


CPU: Final = Size("TensorFlow for CPUs", 334, 1690)
CUDA: Final = Size("TensorFlow with CUDA's libraries", 3440, 6720)
BASE_MB: Final = 45
"""Megabytes of an official slim Python image, compressed for the download."""

COMPILER_MB: Final = 73
"""Megabytes of Debian's packages that compile Horovod; the build removes them again."""


def download_notice(image: Image, *, has_base: bool) -> str:
    """Return one line: the downloads of a build without cache, and the size of the image."""
    base = f"base image {image.base}" + (" is here" if has_base else f" (about {BASE_MB} MB)")
    size = size_of(image)
    if size is None:
        parts = [f"{image.tensorflow} (of unknown size)", base]
    else:
        named = f", {image.tensorflow}" if image.tensorflow else ""
        wheels = f"{size.what}{named} (about {_size(size.download_mb)})"
        parts = [wheels, base, f"the image takes {_size(size.image_mb)}"]
    if image.horovod:
        compiler = f"a compiler for Horovod (about {COMPILER_MB} MB)"
        parts.insert(1, f"{compiler}, which runs for minutes")
    return f"building {image.name} downloads {'; '.join(parts)}"


def size_of(image: Image) -> Size | None:
    """Return the size of an image's TensorFlow; None if it was not measured."""
    if not image.tensorflow:
        return CUDA if image.requirements.endswith("cuda") else CPU
    if "and-cuda" in image.tensorflow:
        return CUDA
    return CPU if image.tensorflow.startswith("tensorflow-cpu") else None


def _size(megabytes: int) -> str:
    return f"{megabytes} MB" if megabytes < 1000 else f"{megabytes / 1000:.1f} GB"  # noqa: PLR2004


class ImageStatus(Enum):
    """Whether an image exists and matches this version of lab."""

    MISSING = auto()
    OLD = auto()
    """It holds another version of `lab/task`."""
    FITS = auto()


def image_status(engine: Engine, image: Image, plan: Plan) -> ImageStatus:
    """Return whether the engine has the image, with this version of lab's code.

    Args:
        engine: The engine.
        image: The image of the plan's rendered file.
        plan: The plan.

    Raises:
        LabError: The engine does not answer. Or the user named the image, and it does not fit. lab
            does not replace such an image: it may contain more than lab's code.
    """
    if not image_exists(engine, image.name):
        return ImageStatus.MISSING
    if image_digest(engine, image.name, plan.name) == digest():
        return ImageStatus.FITS
    own = render.image_of(plan)
    if image.name != own:
        variable = f"{IMAGES[plan.tensorflow].variable}_IMAGE"
        raise LabError(
            f"the image {short(image.name)} ({variable}) holds another version of lab's code than"
            " this lab",
            f"if `lab build` made it, run `lab build` again; if you built it on {own}, run"
            f" `{variable}= lab build` and then your own build",
        )
    return ImageStatus.OLD


def outdated_message(image: Image) -> str:
    """Return the message for an image that must be built again."""
    return f"the image {image.name} holds another version of lab's code than this lab"


def ensure(
    engine: Engine, compose: Compose, image: Image, plan: Plan, *, root: Path, notify: Notify
) -> None:
    """Build an image, unless the engine has it with this version of lab's code; see `build`.

    Raises:
        LabError: It cannot be built, or the user named an image with another version.
    """
    found = image_status(engine, image, plan)
    if found is ImageStatus.OLD:
        notify(f"{outdated_message(image)}; building it again")
    if found is not ImageStatus.FITS:
        build(engine, compose, image, plan, root=root, notify=notify)


def build(
    engine: Engine, compose: Compose, image: Image, plan: Plan, *, root: Path, notify: Notify
) -> None:
    """Build an image, and check that it holds this version of lab's code.

    Args:
        engine: The engine.
        compose: The rendered file.
        image: The image of that file.
        plan: The plan.
        root: The project's directory, with `Dockerfile.gpu`.
        notify: Receives the size of the download, a notice if the image is not locked, and the
            progress.

    Raises:
        LabError: There is no builder, the build failed, or the project's directory has another
            version of lab.
    """
    require_builder()
    notify(download_notice(image, has_base=image_exists(engine, image.base)))
    if image.tensorflow:
        variable = f"{IMAGES[plan.tensorflow].variable}_TENSORFLOW"
        notify(
            f"{variable} is set, so the image is not locked: pip chooses its packages and checks"
            " no hashes"
        )
    compose.build(image.service, notify)
    if image_digest(engine, image.name, plan.name) != digest():
        raise LabError(
            f"the image {short(image.name)} was built from another version of lab's code,"
            f" {visible(str(root / 'lab'))}, than this lab has,"
            f" {visible(str(PACKAGE))}",
            "use the `lab` of that directory, or update both to one version",
        )


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
