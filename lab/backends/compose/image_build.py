"""The tasks' image: name, base, size, the version of lab's own code in it, and building it."""

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

from lab.backends import Notify
from lab.backends.compose.cli import Compose
from lab.backends.compose.client import Engine, NotFound, engine_errors
from lab.backends.state import state_directory
from lab.errors import LabError
from lab.placement.plan import Plan
from lab.render import compose as render
from lab.task.probes.version import IN_IMAGE, PACKAGE, digest
from lab.task.protocol.files import write_atomically
from lab.task.text import short, visible
from lab.tf_versions import IMAGES

if TYPE_CHECKING:
    from docker.models.containers import Container

_DIGEST: Final = re.compile(rb"[0-9a-f]{64}\n")
_DOING: Final = "asking for the version of lab in"
_MOST_CACHED: Final = 32
"""Images in the cache; a class uses two or three."""

_MOST: Final = 2**16
"""Bytes of the archive that are enough: anybody may have made the image."""


@dataclass(frozen=True, slots=True)
class Image:
    """What the tasks run in.

    Attributes:
        service: The first service that builds it.
        name: `lab:cpu`.
        base: The image that it is built on, `python:3.11-slim-bookworm`.
        tensorflow: What pip installs, `tensorflow-cpu==2.21.*`.
        horovod: What pip compiles, `horovod==0.28.1`, or "".
    """

    service: str
    name: str
    base: str
    tensorflow: str
    horovod: str = ""


def image_of(config: dict[str, Any]) -> Image:
    """The image in compose's own reading of a rendered file.

    Raises:
        ValueError: No service builds one.
    """
    for name, service in config["services"].items():
        if "build" in service:
            arguments = service["build"]["args"]
            return Image(
                name,
                service["image"],
                arguments["BASE_IMAGE"],
                arguments["TENSORFLOW"],
                arguments.get("HOROVOD", ""),
            )
    raise ValueError("no service of the rendered file builds an image")


def image_exists(engine: Engine, name: str) -> bool:
    """Whether the engine holds an image of this name.

    Raises:
        LabError: The engine does not answer.
    """
    with engine_errors("looking for the image"):
        return bool(engine.client().images.list(name=name))


def can_pull(engine: Engine, name: str) -> bool:
    """Whether a registry that the engine reaches has an image of this name."""
    try:
        with engine_errors("asking the registry"):
            engine.client().images.get_registry_data(name)
    except LabError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Size:
    """What one choice of TensorFlow costs, measured on x86-64: docs/evidence/cuda-image.md.

    Attributes:
        what: In words.
        download_mb: Megabytes (10⁶ bytes) of wheels.
        image_mb: Megabytes of the whole image.
    """

    what: str
    download_mb: int
    image_mb: int


CPU: Final = Size("TensorFlow for CPUs", 334, 1690)
CUDA: Final = Size("TensorFlow with CUDA's libraries", 3440, 6720)
BASE_MB: Final = 45
"""Megabytes of an official slim Python image, compressed as it is downloaded."""

COMPILER_MB: Final = 73
"""Megabytes of Debian's packages that Horovod is compiled with; they leave the image again."""


def download_notice(image: Image, *, has_base: bool) -> str:
    """What a build from nothing downloads, and how large the image becomes; one line."""
    base = f"base image {image.base}" + (" is here" if has_base else f" (about {BASE_MB} MB)")
    size = size_of(image.tensorflow)
    if size is None:
        parts = [f"{image.tensorflow} (of unknown size)", base]
    else:
        wheels = f"{size.what}, {image.tensorflow} (about {_size(size.download_mb)})"
        parts = [wheels, base, f"the image takes {_size(size.image_mb)}"]
    if image.horovod:
        compiler = f"a compiler for {image.horovod} (about {COMPILER_MB} MB), which works minutes"
        parts.insert(1, compiler)
    return f"building {image.name} downloads {'; '.join(parts)}"


def size_of(tensorflow: str) -> Size | None:
    """What a requirement costs; None for one that was never measured."""
    if "and-cuda" in tensorflow:
        return CUDA
    return CPU if tensorflow.startswith("tensorflow-cpu") else None


def _size(megabytes: int) -> str:
    return f"{megabytes} MB" if megabytes < 1000 else f"{megabytes / 1000:.1f} GB"  # noqa: PLR2004


class ImageStatus(Enum):
    """How an image stands to this lab."""

    MISSING = auto()
    OLD = auto()
    """It holds another version of the code that runs beside the programs."""
    FITS = auto()


def image_status(engine: Engine, image: Image, plan: Plan) -> ImageStatus:
    """Whether the image is here and holds the code that this lab speaks to.

    Args:
        engine: The engine.
        image: What the plan's rendered file asks for.
        plan: The plan.

    Raises:
        LabError: The engine does not answer, or the image does not fit and is one that the user
            has named. That is never replaced unasked: there may be more in it than lab's own.
    """
    if not image_exists(engine, image.name):
        return ImageStatus.MISSING
    if image_digest(engine, image.name, plan.name) == digest():
        return ImageStatus.FITS
    own = render.image_of(plan)
    if image.name != own:
        variable = f"{IMAGES[plan.tensorflow].variable}_IMAGE"
        raise LabError(
            f"the image {short(image.name)} ({variable}) holds another version of lab/task than"
            " this lab",
            f"run `lab build` again if that made it; if you built it on {own}, run"
            f" `{variable}= lab build` and then your own build",
        )
    return ImageStatus.OLD


def outdated_message(image: Image) -> str:
    """What is said of an image that is built again because it is old."""
    return f"the image {image.name} holds another version of lab/task than this lab"


def build(
    engine: Engine, compose: Compose, image: Image, plan: Plan, *, root: Path, notify: Notify
) -> None:
    """Build an image, and see that it holds the code that this lab speaks to.

    Args:
        engine: The engine.
        compose: The rendered file.
        image: What that asks for.
        plan: The plan.
        root: The project's directory, with `Dockerfile.gpu`.
        notify: Receives what will be downloaded, then progress.

    Raises:
        LabError: It does not build, or the project's folder has another version of lab.
    """
    notify(download_notice(image, has_base=image_exists(engine, image.base)))
    compose.build(image.service, notify)
    if image_digest(engine, image.name, plan.name) != digest():
        raise LabError(
            f"the image {short(image.name)} was built from another version of lab/task,"
            f" {visible(str(root / 'lab' / 'task'))}, than this lab has,"
            f" {visible(str(PACKAGE / 'task'))}",
            "run the lab of that folder, or bring both to one version",
        )


def image_digest(engine: Engine, name: str, project: str) -> str:
    """The digest of lab's sources in an image.

    The engine shows files of containers only, so one is made for it, which never starts. Nothing is
    written: `lab doctor` asks, too, and leaves nothing behind.

    Args:
        engine: The engine; it holds the image.
        name: The image's name.
        project: Whose container it is, should it be left: `lab down` removes it.

    Returns:
        As `lab.task.probes.version` computes it; "" for an image that says none.

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
        # A `lab down` of this project may have been faster.
        with suppress(NotFound), engine_errors(f"{_DOING} the image"):
            container.remove(v=True, force=True)


def container_digest(engine: Engine, container_id: str, image_id: str) -> str:
    """The same of a container's image, whether the container runs or not; it is read once.

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
    if found:  # that there is none may have another reason next time
        _cache_digest(image_id, found)
    return found


def _read(container: Container) -> str:
    archive = bytearray()
    try:
        with engine_errors(f"{_DOING} a container"):
            pieces, _ = container.get_archive(IN_IMAGE)
            for piece in pieces:
                archive += piece
                if len(archive) > _MOST:
                    break
    except NotFound:
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
    return state_directory() / "compose" / "images.json"


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
