"""The tasks' image: its name, base and size, the version of lab's code in it, and its build."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from lab.backends.build_context import prepare_context
from lab.backends.compose import render
from lab.backends.compose.cli import Compose, compose_version
from lab.backends.engine.client import Engine, engine_errors
from lab.backends.options import Values
from lab.backends.rendered_file import Rendering
from lab.backends.run_volume import NotFound
from lab.base.errors import LabError
from lab.base.image_digest import BUILD_ARGUMENT, LABEL, PACKAGE, digest
from lab.base.log import LOG
from lab.base.variables import LAB_IMAGE, LAB_TENSORFLOW
from lab.cluster.placement.plan import Plan
from lab.cluster.project import DEFAULT_CLUSTER


@dataclass(frozen=True, slots=True)
class Image:
    """The image of the tasks.

    Attributes:
        service: The first service that builds it.
        name: `lab:cpu`.
        base: Its base image, `python:3.11-slim-bookworm`.
        requirements: The name of the file in `requirements/` with its packages, `image-cpu`.
        tensorflow: pip's requirement for another TensorFlow, which is not locked; or "".
    """

    service: str
    name: str
    base: str
    requirements: str
    tensorflow: str = ""


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
                arguments.get("TENSORFLOW", ""),
            )
    raise ValueError("no service of the rendered file builds an image")


def image_digest(engine: Engine, name: str) -> str | None:
    """Return the digest of lab's code in an image, by its label.

    Returns:
        The digest; "" if `lab` did not build the image; None if there is no such image.

    Raises:
        LabError: The engine does not answer.
    """
    try:
        # The engine's filter of names does not find NAME:TAG@DIGEST.
        with engine_errors("looking for the image"):
            return str(engine.client().images.get(name).labels.get(LABEL, ""))
    except NotFound:
        return None


CPU: Final = ("TensorFlow for CPUs (about 334 MB)", "; the image takes 1.7 GB")
CUDA: Final = ("TensorFlow with CUDA's libraries (about 3.4 GB)", "; the image takes 6.7 GB")
_SIZES: Final[Mapping[str, tuple[str, str]]] = {
    "image-cpu": CPU,
    "image-cuda": CUDA,
    "image-heritage-cpu": CPU,
    "image-heritage-cuda": CUDA,
    # The images of the next two: the installed packages and 130 MB of the base image.
    "image-torch-cpu": ("PyTorch for CPUs (about 224 MB)", "; the image takes 1.1 GB"),
    "image-jax-cpu": ("JAX for CPUs (about 146 MB)", "; the image takes 790 MB"),
    "image-torch-cuda": ("PyTorch with CUDA's libraries (about 3.0 GB)", ""),
    "image-jax-cuda": ("JAX with CUDA's libraries (about 3.4 GB)", ""),
}
"""The packages of an image with the size of their locked wheels, as the package index states it,
and the size of the whole image, measured on x86-64 with Python 3.11; "": not measured."""


def download_notice(image: Image, *, has_base: bool) -> str:
    """Return one line: the downloads of a build without cache, and the size of the image."""
    # An official slim Python image, compressed for the download.
    base = f"base image {image.base}{' is here' if has_base else ' (about 45 MB)'}"
    unknown = image.tensorflow or f"requirements/{image.requirements}.txt"
    packages, takes = f"{unknown} (of unknown size)", ""
    if not image.tensorflow:
        packages, takes = _SIZES.get(image.requirements, (packages, takes))
    return f"building {image.name} downloads {packages}; {base}{takes}"


@dataclass(frozen=True, slots=True)
class ImageBuilder:
    """Builds the image of a plan's tasks, where it is missing or holds other code than this lab.

    Attributes:
        engine: The engine.
        plan: The plan.
        compose: The rendered file of the plan.
        image: The image of that file.
    """

    engine: Engine
    plan: Plan
    compose: Compose
    image: Image

    @classmethod
    def of(cls, engine: Engine, plan: Plan, compose: Compose) -> ImageBuilder:
        """Return the builder for a rendered file.

        Raises:
            LabError: compose cannot read the file.
        """
        return cls(engine, plan, compose, image_of(compose.config()))

    def problem(self) -> str:
        """Return why the image must be built; "" if the engine has it with this version of lab.

        Raises:
            LabError: The engine does not answer. Or the user named the image, and it does not fit.
                lab does not replace such an image: it may contain more than lab's code.
        """
        name = self.image.name
        sources = image_digest(self.engine, name)
        if sources is None:
            return f"there is no image {name}"
        if sources == digest():
            return ""
        own = render.image_of(self.plan)
        if name != own:
            raise LabError(
                f"the image {name} ({LAB_IMAGE}) has a different version of lab's code",
                f"if `lab build` made it, run `lab build` again; if you built it on {own}, run"
                f" `{LAB_IMAGE}= lab build` and then your own build",
            )
        return f"the image {name} has a different version of lab's code"

    def has_base(self) -> bool:
        """Whether the engine has the base image, or can pull it from a registry."""
        base = self.image.base
        if image_digest(self.engine, base) is not None:
            return True
        try:
            with engine_errors("querying the registry"):
                self.engine.client().images.get_registry_data(base)
        except LabError:
            return False
        return True

    def ensure(self) -> None:
        """Build the image, unless the engine has it with this version of lab's code; see `build`.

        Raises:
            LabError: It cannot be built, or the user named an image with another version.
        """
        if problem := self.problem():
            LOG.info(f"{problem}; building it")
            self.build()

    def build(self) -> None:
        """Build the image.

        Raises:
            LabError: The build failed, or the project's directory has another version of lab.
        """
        image = self.image
        package = prepare_context(self.compose.root) / PACKAGE.name
        if not _is_this_version(package):
            raise LabError(
                f"{image.name} would get another version of lab's code,"
                f" {package}, than this lab has, {PACKAGE}",
                "use the `lab` of that directory, or update both to the same version",
            )
        has_base = image_digest(self.engine, image.base) is not None
        LOG.info(download_notice(image, has_base=has_base))
        if image.tensorflow:
            LOG.warning(
                f"{LAB_TENSORFLOW} is set, so the image is not locked: pip chooses its packages and"
                " checks no hashes"
            )
        self.compose.build(image.service, **{BUILD_ARGUMENT: digest()})


def _is_this_version(package: Path) -> bool:
    try:
        return digest(package) == digest()
    except OSError:  # a part of the image is missing
        return False


@contextmanager
def image_builder(
    engine: Engine, plan: Plan, root: Path, options: Values = render.DEFAULTS
) -> Iterator[ImageBuilder]:
    """Yield the builder of a plan's image, without a boot.

    Args:
        engine: The engine.
        plan: The plan. With GPUs, the image has TensorFlow for CUDA, else TensorFlow for CPUs.
        root: The project's directory.
        options: The options of the rendered file.

    Raises:
        LabError: There is no compose, or it cannot read the file or its variables.
    """
    with TemporaryDirectory(prefix="lab-build-") as folder:
        file = Path(folder) / "docker-compose.yml"
        root = root.absolute()
        text = render.render(plan, options, Rendering.at(root, root / DEFAULT_CLUSTER, root))
        file.write_text(text, encoding="utf-8")
        yield ImageBuilder.of(engine, plan, Compose(plan.name, file, root))


def build_image(plan: Plan, *, root: Path, if_needed: bool = False) -> str:
    """Build the image of a plan's tasks.

    Args:
        plan: The plan.
        root: The project's directory.
        if_needed: Whether to keep an image with this version of lab's code.

    Returns:
        The image's name.

    Raises:
        LabError: There is no engine with compose, the build fails, or the project's directory has
            another version of lab than the one that runs.
    """
    engine = Engine()
    engine.version()
    compose_version()
    with image_builder(engine, plan, root) as builder:
        (builder.ensure if if_needed else builder.build)()
    return builder.image.name
