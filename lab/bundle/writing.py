"""Write a bundle on a host with a network."""

from __future__ import annotations

import hashlib
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined

import lab
from lab.backends.compose.image_build import build_image
from lab.backends.engine.client import Engine
from lab.bundle import images as engine_images
from lab.bundle.archive import (
    FORMAT,
    INSTALL,
    README,
    WHEELS,
    Manifest,
    Writer,
    is_bundle,
    opened,
)
from lab.bundle.content import documents, download, project_files, wheel_sets
from lab.classroom.config import ClassConfig, load_class
from lab.config import load_cluster
from lab.errors import InputError, LabError
from lab.log import LOG
from lab.outputs import check_output
from lab.placement.place import place_here
from lab.project import cluster_path, find_root
from lab.runtimes import RUNTIMES, TENSORFLOW, Runtime
from lab.text import short
from lab.volume.files import atomic_writer

_PIECE: Final = 1 << 20
_TEMPLATES: Final = files(__package__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a bundle must have.

    Attributes:
        config: The cluster config.
        gpus: How GPUs are pinned, as for `lab build`.
        runtimes: The frameworks.
        classroom: The file of the class config and its content; None: no class.
        with_images: Whether the bundle has images.
    """

    config: Path
    gpus: str
    runtimes: tuple[Runtime, ...]
    classroom: tuple[Path, ClassConfig] | None
    with_images: bool

    @classmethod
    def of(
        cls,
        cluster: str | None,
        gpus: str,
        frameworks: Sequence[str],
        class_file: str | None,
        *,
        with_images: bool,
    ) -> Wanted:
        """Read the configs.

        Raises:
            InputError: There is no such config, or it is not valid.
        """
        classroom = None
        if class_file is not None:
            path = Path(class_file)
            classroom = path, load_class(path)
        names = dict.fromkeys(frameworks or (TENSORFLOW.name,))
        runtimes = tuple(RUNTIMES[each] for each in names)
        return cls(cluster_path(cluster), gpus, runtimes, classroom, with_images)


@dataclass(frozen=True, slots=True)
class Written:
    """A bundle that was written.

    Attributes:
        file: Its file.
        bytes: Its size.
        sha256: The SHA-256 of the file.
        since: The earlier bundle; "": none.
        left_out_bytes: The size of what only the earlier bundle has.
        images: The names of the images.
        wheels: The number of wheels.
        files: The number of files of the project and of the documents.
    """

    file: str
    bytes: int
    sha256: str
    since: str
    left_out_bytes: int
    images: tuple[str, ...]
    wheels: int
    files: int

    def to_json(self) -> dict[str, Any]:
        """Return all of it as a JSON value."""
        return asdict(self)


def write(target: Path, wanted: Wanted, since: Path | None, *, force: bool) -> Written:
    """Write a bundle.

    Args:
        target: The file.
        wanted: What it must have.
        since: An earlier bundle: what that has is left out. None: nothing is left out.
        force: Whether to replace a file that is no bundle.

    Raises:
        InputError: The file may not be written, or a config does not fit.
        LabError: An image cannot be built or saved, or a wheel cannot be downloaded.
    """
    check_output("OUTPUT", target, is_bundle, force=force)
    known, earlier = _earlier(since, target) if since else (set[str](), "")
    names = _images(wanted) if wanted.with_images else []
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".lab-bundle-", dir=target.resolve().parent) as name,
            atomic_writer(target.resolve()) as file,
        ):
            writer = Writer(file, known)
            manifest = _write_all(writer, names, wanted, earlier, Path(name))
    except OSError as error:
        what = f"{short(str(target))} cannot be written: {error.strerror or error}"
        raise LabError(what, "make room, or name a file on another disk") from error
    with target.open("rb") as written:
        sha256 = hashlib.file_digest(written, "sha256").hexdigest()
    return Written(
        str(target),
        target.stat().st_size,
        sha256,
        "" if since is None else str(since),
        sum(size for sha256, size in manifest.blobs().items() if sha256 in known),
        tuple(each.name for each in manifest.images),
        len(manifest.wheels),
        len(manifest.files),
    )


def _earlier(since: Path, target: Path) -> tuple[set[str], str]:
    """Return the SHA-256 of each blob of an earlier bundle, and its id.

    Raises:
        InputError: It is the file that is written.
        LabError: It is not a valid bundle.
    """
    with opened(since) as bundle:
        if target.exists() and target.samefile(since):
            raise InputError(f"{short(str(target))} is the earlier bundle", "name another output")
        return set(bundle.manifest.blobs()), bundle.id


def _images(wanted: Wanted) -> list[str]:
    """Build the images that are missing or old; return the names of all.

    Raises:
        LabError: There is no engine with compose, or a build fails.
    """
    # docker-py, which takes 0.2 s to import
    from lab.classroom.image import SOURCES, ensure_image, task_images  # noqa: PLC0415

    engine = Engine()
    engine.version()
    root, cluster = find_root(wanted.config), load_cluster(wanted.config)
    names = [
        build_image(place_here(cluster, wanted.gpus, each.name).plan, root=root, if_needed=True)
        for each in wanted.runtimes
    ]
    if wanted.classroom is not None:
        from lab.backends.build_context import prepare_context  # noqa: PLC0415

        config = wanted.classroom[1]
        gpus = bool(config.seat.gpus.count or config.seat.gpus.queue)
        sources = prepare_context(root, SOURCES)
        cpu_runs = config.cpu_runs > 0
        names += task_images(gpus=gpus, root=sources, cpu_runs=cpu_runs)
        names.append(ensure_image(engine, gpus=gpus, root=sources, cpu_runs=cpu_runs))
    return [*dict.fromkeys(name if ":" in name else f"{name}:latest" for name in names)]


def _write_all(
    writer: Writer, names: Sequence[str], wanted: Wanted, since: str, work: Path
) -> Manifest:
    """Write all parts; what is changed most often is written first."""
    sets = wheel_sets(wanted.runtimes, for_class=wanted.classroom is not None)
    download(sets, work)
    wheels = {
        f"{each.environment}/{path.name}": path
        for each in sets
        for path in sorted((work / each.environment).iterdir())
    }
    pages, first = documents(work / "documents")
    plain = _plain(wheels, names, first)
    top = {
        name: writer.plain(name, data, 0o755 if name == INSTALL else 0o644)
        for name, data in plain.items()
    }
    engine = Engine(engine_images.PATIENCE_S)
    LOG.info("writing the project, the documents and the wheels")
    sources = dict(project_files(wanted.config, wanted.classroom)) | dict(pages)
    manifest = Manifest(
        format=FORMAT,
        lab=lab.__version__,
        python=platform.python_version(),
        platform=_platform(),
        since=since,
        plain=top,
        files={name: writer.blob(_pieces(path)) for name, path in sources.items()},
        wheels={name: writer.blob(_pieces(path)) for name, path in wheels.items()},
        images=tuple(engine_images.save(engine, name, writer) for name in names),
    )
    try:
        manifest.check()
    except ValueError as error:
        raise LabError(f"the bundle cannot have all files: {error}", "rename it") from error
    writer.finish(manifest)
    return manifest


def _plain(wheels: Mapping[str, Path], images: Sequence[str], first: str) -> dict[str, bytes]:
    """Return the files at the top of the archive, the one that names its kind first."""
    major, minor, *_ = sys.version_info
    values = {
        "lab": lab.__version__,
        "major": major,
        "minor": minor,
        "version": ", ".join(map(str, sys.version_info[:3])),
        "wanted": f"Python {platform.python_version()} or a later {major}.{minor}",
        "platform": _platform(),
    }
    environment = Environment(  # noqa: S701  (the output is not HTML)
        undefined=StrictUndefined, keep_trailing_newline=True
    )
    made = {}
    for name, template in ((README, "readme.txt.j2"), (INSTALL, "install.sh.j2")):
        text = (_TEMPLATES / template).read_text(encoding="utf-8")
        shown_text = environment.from_string(text).render(**values, images=images, documents=first)
        made[name] = shown_text.encode()
    sums = (f"{_sha256(path)}  {name}\n" for name, path in wheels.items())
    return made | {WHEELS: "".join(sums).encode()}


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _platform() -> str:
    return platform.machine()
