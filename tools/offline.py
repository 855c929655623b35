"""Pack what a room without network needs into one file, and install it there.

    .venv/bin/python tools/offline.py pack room.tar --image lab:cpu .
    python3.11 offline.py install room.tar

`docs/how-to/room-without-network.md` explains both. In the room there is only Python, so this
script imports nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Final, cast

ROOT: Final = Path(__file__).resolve().parents[1]
SUMS: Final = "SHA256SUMS"
IMAGES: Final = "images.tar"
VENV: Final = Path(".venv")

Members = Mapping[str, tarfile.TarInfo]


class OfflineError(Exception):
    """What is wrong, and how to fix it, in one line."""


def pack(output: Path, locks: Sequence[str], images: Sequence[str], files: Sequence[str]) -> None:
    """Write wheels, images and files of the current directory into one archive.

    Raises:
        OfflineError: A command fails, or a file is not in this directory.
        OSError: A file is missing, or the disk is full.
    """
    with tempfile.TemporaryDirectory(prefix=".offline-", dir=output.resolve().parent) as folder:
        stage, written = Path(folder, "stage"), Path(folder, "written")
        stage.mkdir()
        with tarfile.open(written, "w") as tar:
            tar.add(__file__, "offline.py")
            for file in files:
                tar.add(_checked(file), f"project/{file}", filter=_for_the_room)
            if images:
                _run("docker", "save", "--output", str(stage / IMAGES), *images)
            download(stage / "wheels", locks)
            for path in sorted(stage.iterdir()):
                tar.add(path, path.name)
        with tarfile.open(written) as tar:
            sums = _sums(tar, _members(tar)).encode()
        with tarfile.open(written, "a") as tar:
            member = tarfile.TarInfo(SUMS)
            member.size = len(sums)
            tar.addfile(member, io.BytesIO(sums))
        written.replace(output)


def download(folder: Path, locks: Sequence[str]) -> None:
    """Download the locked wheels for this Python and platform, and build the one of lab."""
    files = [f"--requirement={ROOT}/requirements/{lock}.txt" for lock in locks]
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes")
    _run(sys.executable, "-m", "pip", "download", *options, f"--dest={folder}", *files)
    build = ("build", "--target=wheel", f"--directory={folder}")
    _run(sys.executable, "-m", "hatchling", *build, directory=ROOT)


def _for_the_room(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out links, runs, keys and hidden files."""
    name = PurePosixPath(member.name).name
    secret = name in {"runs", "__pycache__"} or name.startswith(".") or name.endswith(".pem")
    return member if (member.isfile() or member.isdir()) and not secret else None


def install(archive: Path) -> None:
    """Check everything, and then load the images, make .venv and write the project's files.

    Raises:
        OfflineError: The archive is not valid, something is in the way, or a command fails.
        OSError: The disk is full.
        tarfile.TarError: The archive is damaged.
    """
    with tarfile.open(archive) as tar:
        members = _members(tar)
        _check_sums(tar, members)
        files = {Path(name).relative_to("project"): name for name in _below("project/", members)}
        for target in (VENV, *files):
            if target.exists() or target.is_symlink():
                raise OfflineError(f"{target} is there already; use a new directory")
        if IMAGES in members:
            _run("docker", "load", "--quiet", content=_content(tar, members[IMAGES]))
        with tempfile.TemporaryDirectory(prefix=".offline-", dir=".") as wheels:
            for name in _below("wheels/", members):
                _extract(tar, members[name], Path(wheels, Path(name).name))
            _make_environment(Path(wheels))
        for target, name in files.items():
            _extract(tar, members[name], target)


def _members(tar: tarfile.TarFile) -> Members:
    """Return the files of an archive; their names stay below its directory."""
    members: dict[str, tarfile.TarInfo] = {}
    for member in tar:
        name = _checked(member.name)
        if not (member.isfile() or member.isdir()) or name in members:
            raise OfflineError(f"{name!r} is a link or a device, or is there twice")
        if member.isfile():
            members[name] = member
    return members


def _checked(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise OfflineError(f"{name!r} leads out of its directory; use a path without `..`")
    return str(path)


def _check_sums(tar: tarfile.TarFile, members: Members) -> None:
    if SUMS not in members:
        raise OfflineError(f"there is no {SUMS}; name an archive that `offline.py pack` wrote")
    told = _content(tar, members[SUMS]).read().decode("utf-8", "replace").splitlines()
    if wrong := set(told) ^ set(_sums(tar, members).splitlines()):
        name = min(line.partition("  ")[2] for line in wrong)
        raise OfflineError(f"{name!r} is damaged, missing or not in {SUMS}; copy the archive again")


def _sums(tar: tarfile.TarFile, members: Members) -> str:
    """Return what `sha256sum` prints for all files but the one with this text."""
    return "".join(
        f"{hashlib.file_digest(_content(tar, member), 'sha256').hexdigest()}  {name}\n"
        for name, member in members.items()
        if name != SUMS
    )


def _below(folder: str, members: Members) -> list[str]:
    return [name for name in members if name.startswith(folder)]


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> io.BufferedReader:
    return cast(io.BufferedReader, tar.extractfile(member))


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        shutil.copyfileobj(_content(tar, member), file)


def _make_environment(wheels: Path) -> None:
    try:
        _run(sys.executable, "-m", "venv", str(VENV))
        options = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
        files = map(str, sorted(wheels.iterdir()))
        _run(str(VENV / "bin/python"), "-m", "pip", "install", *options, *files)
    except BaseException:
        shutil.rmtree(VENV, ignore_errors=True)
        raise


def _run(*command: str, content: IO[bytes] | None = None, directory: Path | None = None) -> None:
    """Run a command that must succeed; it gets the content as its input."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=directory) as process:
        try:
            with process.stdin or io.BytesIO() as stdin:
                shutil.copyfileobj(content or io.BytesIO(), stdin)
        except BrokenPipeError:
            pass  # its exit code and its own message tell why
    if process.returncode:
        raise OfflineError(f"`{command[0]} {command[1]}` failed; see its message above")


def main() -> None:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="write an archive")
    packing.add_argument("--lock", action="append", help="a file of requirements/ (default: host)")
    packing.add_argument("--image", action="append", default=[], help="an image, as lab:cpu")
    commands.add_parser("install", help="check an archive, and install it in this directory")
    for each in commands.choices.values():
        each.add_argument("archive", type=Path)
    packing.add_argument("files", nargs="+", help="files and directories of the project")
    given = parser.parse_args()
    try:
        if given.command == "install":
            install(given.archive)
        else:
            pack(given.archive, given.lock or ["host"], given.image, given.files)
    except (OfflineError, OSError, tarfile.TarError) as error:
        sys.exit(f"offline.py: error: {error}")


if __name__ == "__main__":
    main()
