"""The file of a bundle: a tar archive of blobs, each named by its SHA-256, and a manifest of them.

A bundle may come from a stranger. So this module reads only plain headers and known names, and
`Manifest.check` allows only paths that a bundle has. A bundle is not compressed: no small file
becomes a large one.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from lab.errors import LabError
from lab.store.archive import check_collisions, is_safe
from lab.text import short
from lab.volume.decoding import from_json
from lab.volume.files import open_regular

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
CHECKSUM: Final = "manifest.sha256"
README: Final = "README.txt"
INSTALL: Final = "install"
WHEELS: Final = "wheels.sha256"

PARTS: Final = (
    *(".gitignore", "Dockerfile.gpu", "cluster.yaml", "data", "scripts", "clusters", "notebooks"),
    "documents",
)
"""The files and directories of a project that a bundle may have, beside configs (`*.yaml`)."""

_PLAIN: Final = frozenset({README, INSTALL, WHEELS, MANIFEST, CHECKSUM})
_BLOB: Final = re.compile(r"blobs/sha256/([0-9a-f]{64})")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_WHEEL: Final = re.compile(r"\.venv(-[a-z0-9]+)?/[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl")
_IMAGE: Final = re.compile(r"[a-z0-9][a-z0-9._/:-]{0,127}:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_BLOCK: Final = tarfile.BLOCKSIZE
_PIECE: Final = 1 << 20
_MAX_MANIFEST: Final = 16 << 20
_MAX_MEMBERS: Final = 100_000
_FIX: Final = "copy it again, and compare its SHA-256 with the one that `lab bundle` printed"


@dataclass(frozen=True, slots=True)
class Blob:
    """Some bytes of a bundle.

    Attributes:
        sha256: Their SHA-256, in hexadecimal.
        size: Their number.
    """

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class SavedImage:
    """An image in a bundle.

    Attributes:
        name: Its name with its tag, `lab:cpu`.
        config: Its config, as in the archive of `docker save`.
        layers: Its layers, the lowest first, likewise.
    """

    name: str
    config: Blob
    layers: tuple[Blob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that a bundle has, also what only an earlier one ships.

    Attributes:
        format: The version of this format.
        lab: The version of lab.
        python: The version of Python for which the wheels are, `3.11.7`; a later 3.11 also fits.
        platform: The platform for which they are, `x86_64`.
        since: The id of the earlier bundle; "": none.
        plain: The files at the top of the archive, by name.
        files: The files of the project, by path.
        wheels: The packages: `.venv/NAME.whl`, by the virtual environment that gets them.
        images: The images.
    """

    format: int
    lab: str
    python: str
    platform: str
    since: str
    plain: Mapping[str, Blob] = field(default_factory=dict)
    files: Mapping[str, Blob] = field(default_factory=dict)
    wheels: Mapping[str, Blob] = field(default_factory=dict)
    images: tuple[SavedImage, ...] = ()

    def blobs(self) -> dict[str, int]:
        """Return the size of each blob, by its SHA-256."""
        images = (each for image in self.images for each in (image.config, *image.layers))
        several = (*self.files.values(), *self.wheels.values(), *images)
        return {each.sha256: each.size for each in several}

    def encoded(self) -> bytes:
        """Return it as JSON."""
        return (json.dumps(asdict(self), indent=1, sort_keys=True) + "\n").encode()

    def check(self) -> None:
        """Check all that it says before any of it is used.

        Raises:
            ValueError: A path, a name or a checksum is not allowed.
        """
        if self.format != FORMAT:
            raise ValueError(f"it has format {self.format}, and this lab reads format {FORMAT}")
        for name in self.files:
            if not _is_allowed(name):
                raise ValueError(f"{short(name)!r} is not a file of a project")
        check_collisions(self.files)
        for name in self.wheels:
            if not _WHEEL.fullmatch(name):
                raise ValueError(f"{short(name)!r} is not a wheel of a virtual environment")
        for image in self.images:
            if not _IMAGE.fullmatch(image.name):
                raise ValueError(f"{short(image.name)!r} is not the name of an image with its tag")
        blobs = self.blobs()
        if bad := [each for each in blobs if not _DIGEST.fullmatch(each) or blobs[each] < 0]:
            raise ValueError(f"{short(bad[0])!r} is not a checksum with its size")


def _is_allowed(name: str) -> bool:
    """Whether a bundle may have a file of a project with this path."""
    path = PurePosixPath(name)
    safe = str(path) == name and all(map(is_safe, path.parts))
    hidden = any(part.startswith(".") for part in path.parts) and name != ".gitignore"
    return safe and not hidden and (path.parts[0] in PARTS or path.suffix == ".yaml")


class Writer:
    """Writes a bundle to a file that can be read by `tar`, in one pass."""

    def __init__(self, file: BinaryIO, known: Collection[str] = ()) -> None:
        """Begin a bundle.

        Args:
            file: A new file, which allows seeking.
            known: The SHA-256 of each blob that an earlier bundle has: it is left out.
        """
        self._file = file
        self._known = set(known)

    def plain(self, name: str, data: bytes, mode: int = 0o644) -> Blob:
        """Write a file at the top of the archive."""
        self._file.write(_header(name, len(data), mode))
        self._file.write(data + bytes(-len(data) % _BLOCK))
        return Blob(hashlib.sha256(data).hexdigest(), len(data))

    def blob(self, pieces: Iterable[bytes]) -> Blob:
        """Write bytes under their checksum, unless this bundle or an earlier one has them."""
        start, digest, size = self._file.tell(), hashlib.sha256(), 0
        self._file.write(bytes(_BLOCK))  # the checksum is known at the end
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            self._file.write(piece)
        found = Blob(digest.hexdigest(), size)
        if found.sha256 in self._known:
            self._file.seek(start)
            self._file.truncate()
            return found
        self._known.add(found.sha256)
        self._file.write(bytes(-size % _BLOCK))
        end = self._file.tell()
        self._file.seek(start)
        self._file.write(_header(f"blobs/sha256/{found.sha256}", size))
        self._file.seek(end)
        return found

    def finish(self, manifest: Manifest) -> str:
        """Write the manifest and the end of the archive; return the id of the bundle."""
        bundle_id = self.plain(MANIFEST, manifest.encoded()).sha256
        self.plain(CHECKSUM, f"{bundle_id}  {MANIFEST}\n".encode())
        self._file.write(bytes(2 * _BLOCK))
        return bundle_id


def _header(name: str, size: int, mode: int = 0o644) -> bytes:
    """Return the header of a member, which has no time and no owner: same input, same bytes."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, mode
    return member.tobuf(tarfile.GNU_FORMAT)


class Bundle:
    """A bundle that is open for reading; only its manifest is checked yet.

    Attributes:
        path: Its file.
        manifest: Its manifest.
        id: The SHA-256 of the manifest.
    """

    def __init__(self, path: Path, file: BufferedReader) -> None:
        """Read the headers and the manifest.

        Raises:
            ValueError: It is not a bundle, or one that is cut off, or its manifest is changed.
        """
        self.path = path
        self._file = file
        self._members = dict(_members(file))
        if missing := _PLAIN - self._members.keys():
            raise ValueError(f"{min(missing)} is missing")
        text = self._read(MANIFEST)
        self.id = hashlib.sha256(text).hexdigest()
        if self._read(CHECKSUM) != f"{self.id}  {MANIFEST}\n".encode():
            raise ValueError(f"{MANIFEST} is not as {CHECKSUM} says: it is damaged or changed")
        self.manifest = from_json(text.decode(), Manifest, "manifest")
        self.manifest.check()
        for name, blob in self.manifest.plain.items():
            if (
                name not in self._members
                or Blob(_sha256(self.pieces(name)), self.size(name)) != blob
            ):
                raise ValueError(f"{short(name)} is damaged")

    def has(self, sha256: str) -> bool:
        """Whether it ships a blob."""
        return _blob_name(sha256) in self._members

    def size(self, name: str) -> int:
        """Return the size of a member."""
        return self._members[name][1]

    def blob(self, sha256: str) -> Iterator[bytes]:
        """Yield the bytes of a blob that it ships; they are not checked.

        Raises:
            LabError: They cannot be read.
        """
        with reading(self.path):
            yield from self.pieces(_blob_name(sha256))

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a member.

        Raises:
            ValueError: The file has become shorter.
        """
        offset, left = self._members[name]
        while left:
            self._file.seek(offset)
            piece = self._file.read(min(left, _PIECE))
            if not piece:
                raise ValueError("it is cut off")
            yield piece
            offset, left = offset + len(piece), left - len(piece)

    def checked(self, blob: Blob) -> Iterator[bytes]:
        """Yield the bytes of a blob that it ships, and check them.

        Raises:
            LabError: The blob is damaged.
        """
        digest, name = hashlib.sha256(), _blob_name(blob.sha256)
        with reading(self.path):
            if self.size(name) == blob.size:
                for piece in self.pieces(name):
                    digest.update(piece)
                    yield piece
            if digest.hexdigest() != blob.sha256:
                raise ValueError(f"{name} is damaged")

    def _read(self, name: str) -> bytes:
        if self.size(name) > _MAX_MANIFEST:
            raise ValueError(f"{name} has more than {_MAX_MANIFEST:,} bytes")
        return b"".join(self.pieces(name))


@contextmanager
def opened(path: Path) -> Iterator[Bundle]:
    """Open a bundle for the block.

    Raises:
        LabError: There is no such file, it cannot be read, or it is not a valid bundle.
    """
    with reading(path):
        file = open_regular(path.resolve())
    with file:
        with reading(path):
            bundle = Bundle(path, file)
        yield bundle


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Report what is wrong with a bundle in one line.

    Raises:
        LabError: The block raised an error of reading, or a ValueError.
    """
    shown = short(str(path))
    try:
        yield
    except FileNotFoundError as error:
        raise LabError(f"there is no file {shown}", "check its path") from error
    except OSError as error:
        raise LabError(f"{shown} cannot be read: {error.strerror}", "check its disk") from error
    except (ValueError, tarfile.TarError) as error:
        raise LabError(f"{shown} is not a valid bundle: {error}", _FIX) from error


def is_bundle(begin: bytes) -> bool:
    """Whether a file with this beginning is a bundle."""
    return begin.startswith(f"{README}\0".encode()) and begin[257:262] == b"ustar"


def _blob_name(sha256: str) -> str:
    return f"blobs/sha256/{sha256}"


def _sha256(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _members(file: BufferedReader) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the name, offset and size of each member. Links and longer headers are refused.

    Raises:
        ValueError: The archive is cut off, or has what no bundle has.
        tarfile.TarError: A header is damaged.
    """
    end, offset, seen = file.seek(0, io.SEEK_END), 0, set[str]()
    while True:
        file.seek(offset)
        block = file.read(_BLOCK)
        if len(block) < _BLOCK:
            raise ValueError("it is cut off")
        if block == bytes(_BLOCK):
            break
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        name, offset = member.name, offset + _BLOCK
        if member.type != tarfile.REGTYPE:
            raise ValueError(f"{short(name)!r} is not a regular file")
        if name not in _PLAIN and not _BLOB.fullmatch(name):
            raise ValueError(f"{short(name)!r} is not a file of a bundle")
        if name in seen or len(seen) >= _MAX_MEMBERS:
            raise ValueError(f"{short(name)!r} is in it twice, or it has too many files")
        seen.add(name)
        yield name, (offset, member.size)
        offset += member.size + -member.size % _BLOCK
    if end != offset + 2 * _BLOCK:
        raise ValueError("its end is not where it must be")
