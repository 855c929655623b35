"""Take the wheels of `make test-gpu` to a host without a network, in pieces.

    python tools/gpu_bundle.py make FOLDER [--python 3.12] [--piece-mib 42] [--all]
    python tools/gpu_bundle.py receive FROM TO
    python tools/gpu_bundle.py install FOLDER VENV

`make` downloads the locked wheels: TensorFlow with CUDA's libraries, the packages of `lab`, and
pytest. It writes them into FOLDER as pieces of a fixed size, with a list and checksums,
`bundle.json`. It needs the network, and a Python with pip and packaging, such as that of `.venv`.

`receive` copies the pieces that have arrived in FROM into TO, checks them, and prints those that
are missing. Repeat it with each piece.

`install` joins the pieces, checks each wheel, makes a virtual environment and installs the wheels
without a network. `receive` and `install` need only the standard library. Then run there:

    PYTHONPATH=. VENV/bin/python -m pytest tests/gpu -rs
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
LOCKS: Final = ROOT / "requirements"
LIST: Final = "bundle.json"
MIB: Final = 2**20

CUDA: Final = ("image-cuda.txt", "host.txt")
TESTS: Final = ("pytest", "pytest-timeout", "pluggy", "iniconfig", "hypothesis", "sortedcontainers")
"""What `tests/gpu` needs beside the packages of `lab`; their versions are in dev.txt."""

UNUSED: Final = ("nvidia-curand-cu12", "nvidia-cuda-nvrtc-cu12", "libclang")
"""Packages that TensorFlow requires and that `make test-gpu` does not load: no random numbers of
CUDA, no code that CUDA compiles, no parser of C."""

_GLIBC: Final = range(5, 40)  # manylinux_2_5 to manylinux_2_39
_CHUNK: Final = 4 * MIB


def make(folder: Path, python: str, piece_bytes: int, *, everything: bool) -> None:
    """Download the wheels and write the pieces.

    Raises:
        SystemExit: pip failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        wheels = Path(scratch)
        lock = wheels / "lock.txt"
        lock.write_text("".join(requirements(python, everything=everything)), encoding="utf-8")
        _download(lock, wheels, python)
        write(sorted(wheels.glob("*.whl")), folder, piece_bytes, python)


def requirements(python: str, *, everything: bool, locks: Path = LOCKS) -> Iterator[str]:
    """The locked requirements for a Python of Linux on x86-64, each with its hashes.

    Args:
        python: Its version: `3.12`.
        everything: Also those of `UNUSED`.
        locks: The directory of the locks.

    Raises:
        SystemExit: There is no lock with CUDA's libraries.
    """
    from packaging.requirements import Requirement  # noqa: PLC0415  (only `make` needs it)

    target = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    seen = set(() if everything else UNUSED)
    for name in (*CUDA, "dev.txt"):
        if not (locks / name).exists():
            sys.exit(f"error: {locks / name} is missing; run `make lock`")
        for entry in _entries((locks / name).read_text(encoding="utf-8")):
            requirement = Requirement(entry.split("\\")[0].split("--hash")[0].strip())
            if requirement.marker is not None and not requirement.marker.evaluate(target):
                continue
            if requirement.name in seen or (name == "dev.txt" and requirement.name not in TESTS):
                continue
            seen.add(requirement.name)
            hashes = "".join(f" {each}" for each in re.findall(r"--hash=\S+", entry))
            yield f"{requirement.name}{requirement.specifier}{hashes}\n"


def _entries(text: str) -> Iterator[str]:
    """The entries of a lock, each with its lines of hashes."""
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    entry = ""
    for line in lines:
        if line[0].isspace():
            entry += f" {line.strip()}"
            continue
        if entry:
            yield entry
        entry = line
    if entry:
        yield entry


def _download(lock: Path, wheels: Path, python: str) -> None:
    number = python.replace(".", "")
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in reversed(_GLIBC)]
    platforms += ["--platform=manylinux2014_x86_64", "--platform=manylinux2010_x86_64"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--requirement", str(lock)]
    command += [f"--python-version={python}", "--implementation=cp", f"--abi=cp{number}"]
    command += ["--abi=abi3", "--abi=none", *platforms, "--dest", str(wheels)]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit("error: pip could not download the wheels; read its message above")


def write(wheels: Sequence[Path], folder: Path, piece_bytes: int, python: str) -> None:
    """Write the wheels, one after the other, into pieces, and their list."""
    pieces: list[dict[str, Any]] = []
    parts = _split(wheels, piece_bytes)
    for number, part in enumerate(parts):
        name = f"piece-{number:03}"
        (folder / name).write_bytes(part)
        pieces.append({"name": name, "bytes": len(part), "sha256": _digest(part)})
    listed = [
        {"name": each.name, "bytes": each.stat().st_size, "sha256": _digest_of(each)}
        for each in wheels
    ]
    contents = {"python": python, "wheels": listed, "pieces": pieces}
    (folder / LIST).write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")
    total = sum(each["bytes"] for each in listed)
    print(
        f"{len(listed)} wheels, {total / 1e6:,.0f} MB, in {len(pieces)} pieces for Python {python}"
    )


def _split(wheels: Sequence[Path], piece_bytes: int) -> Iterator[bytes]:
    waiting = bytearray()
    for wheel in wheels:
        with wheel.open("rb") as file:
            while block := file.read(_CHUNK):
                waiting += block
                while len(waiting) >= piece_bytes:
                    yield bytes(waiting[:piece_bytes])
                    del waiting[:piece_bytes]
    if waiting:
        yield bytes(waiting)


def receive(arrived: Path, folder: Path) -> list[str]:
    """Copy the pieces that have arrived, and check them; return the names of the missing ones.

    Raises:
        SystemExit: The list is missing, or belongs to other pieces.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (arrived / LIST).exists() and not (folder / LIST).exists():
        shutil.copy(arrived / LIST, folder)
    contents = _contents(folder)
    missing = []
    for piece in contents["pieces"]:
        here = folder / piece["name"]
        source = arrived / piece["name"]
        if not here.exists() and source.exists() and _digest_of(source) == piece["sha256"]:
            shutil.copy(source, here)
        if not here.exists() or here.stat().st_size != piece["bytes"]:
            here.unlink(missing_ok=True)
            missing.append(piece["name"])
    count = len(contents["pieces"])
    more = f"; missing: {missing[0]} and {len(missing) - 1} others" if missing else ""
    print(f"{count - len(missing)} of {count} pieces{more}")
    return missing


def join(folder: Path, wheels: Path) -> list[Path]:
    """Join the pieces and write the wheels, each checked.

    Raises:
        SystemExit: A piece is missing, or a wheel is damaged.
    """
    contents = _contents(folder)
    wheels.mkdir(parents=True, exist_ok=True)
    stream = _stream([folder / piece["name"] for piece in contents["pieces"]])
    waiting = bytearray()
    written = []
    for wheel in contents["wheels"]:
        path = wheels / Path(wheel["name"]).name
        left = wheel["bytes"]
        digest = hashlib.sha256()
        with path.open("wb") as file:
            while left:
                if not waiting:
                    waiting += next(stream, b"")
                    if not waiting:
                        sys.exit(f"error: {path.name}: a piece is too short; copy the pieces again")
                part = bytes(waiting[:left])
                del waiting[: len(part)]
                file.write(part)
                digest.update(part)
                left -= len(part)
        if digest.hexdigest() != wheel["sha256"]:
            sys.exit(f"error: {path.name} is damaged; copy the pieces again")
        written.append(path)
    return written


def install(folder: Path, venv: Path) -> None:
    """Make a virtual environment with the wheels, without a network.

    Raises:
        SystemExit: A piece is missing, this is another Python, or pip failed.
    """
    wanted = _contents(folder)["python"]
    if platform.python_version_tuple()[:2] != tuple(wanted.split(".")):
        sys.exit(f"error: the wheels are for Python {wanted}; run this with python{wanted}")
    wheels = folder / "wheels"
    paths = join(folder, wheels)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    command = [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--no-index"]
    command += ["--disable-pip-version-check", "--no-deps", "--no-compile", *map(str, paths)]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit("error: pip could not install the wheels; read its message above")
    shutil.rmtree(wheels)
    print(f"{len(paths)} wheels are installed in {venv}")


def _contents(folder: Path) -> dict[str, Any]:
    try:
        contents: dict[str, Any] = json.loads((folder / LIST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        sys.exit(f"error: {folder / LIST} is missing; copy it with the first piece")
    return contents


def _stream(paths: Sequence[Path]) -> Iterator[bytes]:
    for path in paths:
        if not path.exists():
            sys.exit(f"error: {path} is missing; `receive` lists all missing pieces")
        with path.open("rb") as file:
            while block := file.read(_CHUNK):
                yield block


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="download the wheels and write the pieces")
    making.add_argument("folder", type=Path)
    making.add_argument("--python", default="3.12", help="the Python of the other host")
    making.add_argument("--piece-mib", type=int, default=42, help="size of a piece in MiB")
    making.add_argument("--all", action="store_true", help="also packages that are not loaded")
    receiving = commands.add_parser("receive", help="copy and check the pieces that arrived")
    receiving.add_argument("arrived", type=Path)
    receiving.add_argument("folder", type=Path)
    installing = commands.add_parser("install", help="install the wheels from the pieces")
    installing.add_argument("folder", type=Path)
    installing.add_argument("venv", type=Path)
    given = parser.parse_args()
    if given.command == "make":
        make(given.folder, given.python, given.piece_mib * MIB, everything=given.all)
    elif given.command == "receive":
        receive(given.arrived, given.folder)
    else:
        install(given.folder, given.venv)


if __name__ == "__main__":
    main()
