"""Images of the engine as blobs: the config and the layers, of which a second bundle has few.

The engine gets them back as an archive that is made here: of a bundle it takes only their bytes,
and the names that `Manifest.check` has allowed.
"""

from __future__ import annotations

import io
import json
import posixpath
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from lab.backends.engine.client import Engine, engine_errors
from lab.backends.engine.error_hints import explain
from lab.bundle.archive import Blob, SavedImage, Writer
from lab.bundle.progress import shown
from lab.errors import LabError

PATIENCE_S: Final = 1800
"""Seconds without data after which a call fails: the engine first writes a whole image to disk."""

_SMALL: Final = 1 << 20
_PIECE: Final = 1 << 20
_LOADED: Final = re.compile(r"Loaded image(?: ID)?: (\S+)")

Read = Callable[[Blob], Iterator[bytes]]
"""Yields the bytes of a blob."""


class _Stream(io.RawIOBase):
    """The bytes of an iterator as a file."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  (any writable buffer)
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = piece
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def save(engine: Engine, name: str, writer: Writer) -> SavedImage:
    """Write the config and the layers of an image to a bundle.

    Raises:
        LabError: The engine does not answer, or has no such image.
    """
    doing = f"saving the image {name}"
    small: dict[str, bytes] = {}
    large: dict[str, Blob] = {}
    links: dict[str, str] = {}
    with engine_errors(doing):
        stream = shown(doing, engine.client().api.get_image(name))
        source = io.BufferedReader(_Stream(stream), _PIECE)
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for member in archive:
                if member.issym():
                    links[member.name] = posixpath.join(
                        posixpath.dirname(member.name), member.linkname
                    )
                elif (file := archive.extractfile(member)) is None:
                    continue
                elif member.size <= _SMALL:
                    small[member.name] = file.read()
                else:
                    large[member.name] = writer.blob(iter(partial(file.read, _PIECE), b""))

    def blob(path: str) -> Blob:
        path = posixpath.normpath(links.get(path, path))
        return large[path] if path in large else writer.blob([small[path]])

    (described,) = json.loads(small["manifest.json"])
    return SavedImage(name, blob(described["Config"]), tuple(map(blob, described["Layers"])))


def load(
    engine: Engine, images: Sequence[SavedImage], read: Read
) -> tuple[dict[str, str], list[str]]:
    """Load images into the engine, without their names: those still mean what they meant before.

    An image that the engine has is not loaded again.

    Returns:
        The engine's id of each image, by the image's name; and the ids that are new.

    Raises:
        LabError: The engine does not take an image; those before it are removed again.
    """
    with engine_errors("listing the images"):
        before = {str(each.id) for each in engine.client().images.list(all=True)}
    ids: dict[str, str] = {}
    try:
        for image in images:
            own = f"sha256:{image.config.sha256}"
            ids[image.name] = own if own in before else _load_one(engine, image, read)
    except BaseException:
        remove(engine, [each for each in ids.values() if each not in before])
        raise
    return ids, [each for each in ids.values() if each not in before]


def remove(engine: Engine, new: Iterable[str]) -> None:
    """Remove loaded images that have no name yet."""
    for each in reversed([*new]):
        with suppress(LabError), engine_errors("removing an image"):
            engine.client().images.remove(each)


def name_all(engine: Engine, ids: Mapping[str, str]) -> None:
    """Give loaded images their names.

    Raises:
        LabError: The engine does not answer.
    """
    for name, image_id in ids.items():
        repository, _, tag = name.rpartition(":")
        with engine_errors(f"naming the image {name}"):
            engine.client().api.tag(image_id, repository, tag)


def _load_one(engine: Engine, image: SavedImage, read: Read) -> str:
    doing = f"loading the image {image.name}"
    size = sum(each.size for each in {image.config, *image.layers})
    with engine_errors(doing):
        sent = shown(doing, _docker_archive(image, read), size)
        api: Any = engine.client().api
        for line in api.load_image(sent, quiet=False):
            if "error" in line:
                raise explain(doing, [str(line["error"])])
            if found := _LOADED.search(str(line.get("stream", ""))):
                return found[1]
    raise LabError(f"{doing}: the engine does not say that it has it", "see the engine's log")


def _docker_archive(image: SavedImage, read: Read) -> Iterator[bytes]:
    """Yield an archive as `docker load` reads it, with one image that has no name."""
    config, layers = f"{image.config.sha256}.json", [f"{each.sha256}.tar" for each in image.layers]
    described = [{"Config": config, "RepoTags": None, "Layers": layers}]
    text = json.dumps(described).encode()
    yield from _member("manifest.json", len(text), [text])
    yield from _member(config, image.config.size, read(image.config))
    for each in dict.fromkeys(image.layers):
        yield from _member(f"{each.sha256}.tar", each.size, read(each))
    yield bytes(2 * tarfile.BLOCKSIZE)


def _member(name: str, size: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
    member = tarfile.TarInfo(name)
    member.size = size
    yield member.tobuf(tarfile.GNU_FORMAT)
    yield from pieces
    yield bytes(-size % tarfile.BLOCKSIZE)
