"""Load a bundle in a room without a network: check everything, and only then change anything."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.filesize import decimal

from lab.backends.engine.client import Engine
from lab.bundle import images as engine_images
from lab.bundle.archive import Blob, Bundle, opened
from lab.bundle.progress import shown
from lab.classroom.config import DEFAULT_FILE
from lab.errors import InputError, LabError
from lab.formatting import counted
from lab.project import replace_files
from lab.text import short

_STAGING: Final = ".lab-load-"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A bundle that was loaded.

    Attributes:
        into: The project's directory.
        written: The number of files that were missing or different.
        kept: The directory that has what was replaced; "": nothing was.
        images: The images that the engine has now.
        new_images: Those that it did not have before.
        next: The commands to run next.
    """

    into: str
    written: int
    kept: str
    images: tuple[str, ...]
    new_images: tuple[str, ...]
    next: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as a JSON value."""
        return asdict(self)


class _Source:
    """The blobs of the newest bundle, each in the bundle that ships it."""

    def __init__(self, bundles: Sequence[Bundle]) -> None:
        """Find each blob.

        Raises:
            InputError: The first bundle is not the newest one, or a blob is in none.
        """
        self.newest = newest = bundles[0]
        for each in bundles[1:]:
            if each.manifest.since == newest.id:
                what = f"{short(str(each.path))} is newer than {short(str(newest.path))}"
                raise InputError(what, "name the newest bundle first")
        self._bundles: dict[str, Bundle] = {}
        missing = 0
        for sha256, size in newest.manifest.blobs().items():
            found = next((each for each in bundles if each.has(sha256)), None)
            if found is None:
                missing += size
            else:
                self._bundles[sha256] = found
        if missing:
            what = f"{short(str(newest.path))} lacks {decimal(missing)} of its content"
            earlier = "name the earlier bundle, too" if newest.manifest.since else "copy it again"
            raise InputError(what, earlier)

    def read(self, blob: Blob) -> Iterator[bytes]:
        """Yield the bytes of a blob."""
        return self._bundles[blob.sha256].blob(blob.sha256)

    def check(self) -> None:
        """Check each blob.

        Raises:
            LabError: One is damaged.
        """
        sizes = self.newest.manifest.blobs()
        checked = (
            piece
            for sha256, size in sizes.items()
            for piece in self._bundles[sha256].checked(Blob(sha256, size))
        )
        for _ in shown("checking the bundle", checked, sum(sizes.values())):
            pass


def load(paths: Sequence[Path], into: Path, *, with_images: bool) -> Loaded:
    """Load the first bundle; all checks come before the first change.

    Args:
        paths: The bundle, and those earlier ones that have a part of it.
        into: The project's directory; it is created if it is missing.
        with_images: Whether to load images into the engine.

    Raises:
        InputError: No bundle is named, or one that is not the newest, or an earlier one is missing.
        LabError: A bundle is damaged, the engine does not answer, or there is no room.
    """
    if not paths:
        raise InputError("no bundle is named", "name the file that `lab bundle` wrote")
    with ExitStack() as stack:
        source = _Source([stack.enter_context(opened(path)) for path in paths])
        source.check()
        manifest = source.newest.manifest
        wanted = manifest.images if with_images else ()
        engine = Engine(engine_images.PATIENCE_S)
        if wanted:
            _check_engine(engine)
        try:
            into.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=_STAGING, dir=into) as name:
                staged = _stage(source, Path(name))
                ids, new = engine_images.load(engine, wanted, source.read) if wanted else ({}, [])
                try:
                    kept, written = replace_files(into, staged, "load", Path.rename)
                except BaseException:
                    engine_images.remove(engine, new)
                    raise
                engine_images.name_all(engine, ids)
        except OSError as error:
            what = f"{short(str(into))} cannot be written: {error.strerror or error}"
            raise LabError(what, "make room, or name another directory with --into") from error
    changed = tuple(name for name, image_id in ids.items() if image_id in new)
    following = _next_commands(into, manifest.files)
    return Loaded(str(into), written, str(kept or ""), tuple(ids), changed, following)


def described(loaded: Loaded) -> Iterator[str]:
    """Yield what was loaded, and what to do next, a line each."""
    yield f"{loaded.into}: {counted(loaded.written, 'file')} written"
    if loaded.kept:
        yield f"what was there before is in {loaded.kept}"
    for name in loaded.images:
        yield f"image {name}: " + ("loaded" if name in loaded.new_images else "is already there")
    yield "next: " + ", ".join(f"`{each}`" for each in loaded.next)


def _next_commands(into: Path, files: Collection[str]) -> tuple[str, ...]:
    change = [] if into.resolve() == Path.cwd() else [f"cd {shlex.quote(str(into))}"]
    train = "lab class up" if DEFAULT_FILE in files else "lab run async --epochs 1"
    return (*change, "lab doctor", train)


def _check_engine(engine: Engine) -> None:
    try:
        engine.version()
    except LabError as error:
        raise LabError(error.what, f"{error.fix}; or load without images: --no-images") from error


def _stage(source: _Source, folder: Path) -> dict[str, Path]:
    """Write all files to a directory beside their places; return them by their names.

    Raises:
        OSError: There is no room.
    """
    staged = {}
    for number, (name, blob) in enumerate(source.newest.manifest.files.items()):
        staged[name] = folder / str(number)
        with staged[name].open("xb") as file:
            file.writelines(source.read(blob))
    return staged
