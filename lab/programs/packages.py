"""Packages that a user's program needs beside those of its runtime: `lab run --with boto3`.

The client resolves and downloads them for the Python of the tasks, which have no Internet. It takes
wheels only, so no package's code runs while it is installed. A run has them in its directory
`packages/`, next to its program.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from packaging.requirements import Requirement
from platformdirs.unix import Unix

from lab.base.errors import InputError
from lab.base.log import LOG
from lab.protocol.volume.files import write_atomically

IMAGE_PYTHON: Final = "3.11"
"""The version of Python in lab's images."""

_LOCKED: Final = re.compile(r"^[a-z0-9.-]+==[^\\\n]+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TaskPython:
    """The Python of a run's tasks.

    Attributes:
        version: `3.11`.
        installed: The versions of its packages, by name.
    """

    version: str
    installed: Mapping[str, str]


def locked_versions(text: str) -> dict[str, str]:
    """Return the versions that an image has from a file of `requirements/`, by name."""
    requirements = map(Requirement, _LOCKED.findall(text))
    place = {"python_version": IMAGE_PYTHON, "python_full_version": f"{IMAGE_PYTHON}.0"}
    return {
        one.name: next(iter(one.specifier)).version
        for one in requirements
        if one.marker is None or one.marker.evaluate(place)
    }


def lock_packages(wanted: Sequence[str], python: TaskPython) -> tuple[str, ...]:
    """Resolve packages and what they need; the answer is kept for the next run.

    Args:
        wanted: The packages, as pip's requirements.
        python: The Python of the tasks. Its packages keep their versions.

    Returns:
        pip's requirement for each package that the tasks lack, with its version and hash.

    Raises:
        InputError: pip cannot resolve them: there is no such package, it has no wheel for this
            Python, it needs another version of a package of the tasks, or there is no network.
    """
    question = [sorted(wanted), python.version, sorted(python.installed.items())]
    answer = _cache() / f"{_digest(json.dumps(question))}.txt"
    if answer.exists():
        return tuple(answer.read_text("utf-8").splitlines())
    with TemporaryDirectory(prefix="lab-packages-") as folder:
        pinned = Path(folder, "constraints.txt")
        pinned.write_text("".join(f"{n}=={v}\n" for n, v in python.installed.items()), "utf-8")
        stand_in = _stand_in(Path(folder, "python"), python.installed)
        report = _pip(
            f"resolving {', '.join(wanted)}", python.version, "--dry-run", "--report=-",
            f"--constraint={pinned}", *wanted, python=str(stand_in),
        )  # fmt: skip
    lock = tuple(sorted(_requirement(package) for package in json.loads(report)["install"]))
    answer.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(answer, "\n".join(lock))
    return lock


def install(lock: Sequence[str], version: str) -> Path:
    """Download packages into a directory that all runs with the same packages share.

    Args:
        lock: The packages, as `lock_packages` returns them.
        version: The version of the tasks' Python, `3.11`.

    Returns:
        The directory, for `PYTHONPATH`.

    Raises:
        InputError: They cannot be downloaded, or a hash differs.
    """
    folder = folder_of(lock)
    if folder.is_dir():
        return folder
    _cache().mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=_cache()) as parent:
        requirements = Path(parent, "requirements.txt")
        requirements.write_text("\n".join(lock), "utf-8")
        names = ", ".join(line.partition(" ")[0] for line in lock)
        made = Path(parent, "packages")
        _pip(
            f"installing {names}", version, "--no-deps", f"--target={made}",
            f"--requirement={requirements}",
        )  # fmt: skip
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another run was faster
                raise
    return folder


def folder_of(lock: Sequence[str]) -> Path:
    """Return the directory into which `install` downloads these packages."""
    return _cache() / _digest("\n".join(lock))


def has_module(folder: Path, name: str) -> bool:
    """Whether the packages in a directory have a module."""
    return any((folder / name).glob("*.py")) or any(folder.glob(f"{name}.*"))


def _cache() -> Path:
    return Unix("lab").user_cache_path / "packages"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


def _stand_in(folder: Path, installed: Mapping[str, str]) -> Path:
    """Make a Python in which packages seem to be installed, so that pip leaves them out.

    The Python of the tasks may be in an image, and the index may lack a package of it.
    """
    venv.create(folder)
    site = Path(sysconfig.get_path("purelib", scheme="venv", vars={"base": str(folder)}))
    for name, version in installed.items():
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(metadata, "utf-8")
    return folder / "bin/python"


def _requirement(package: Mapping[str, Any]) -> str:
    """Return the requirement of an entry of pip's report, with its hash."""
    name, version = package["metadata"]["name"], package["metadata"]["version"]
    hashes = package["download_info"]["archive_info"]["hashes"]
    return f"{name}=={version} --hash=sha256:{hashes['sha256']}"


def _pip(doing: str, version: str, *arguments: str, python: str = sys.executable) -> str:
    """Let pip install wheels for the tasks' Python; return what it prints.

    Raises:
        InputError: It fails. The message is its last error.
    """
    LOG.info(doing)
    machine = platform.machine()
    # Debian 12, on which the images are based, runs what is built for these versions of glibc.
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in range(28, 16, -1)]
    platforms += [f"--platform=manylinux2014_{machine}"]
    command = [sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--retries=1", "--only-binary=:all:"]
    command += [f"--python-version={version}", *platforms, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        reason = (errors or done.stderr.splitlines()[-1:] or ["pip failed"])[0]
        raise InputError(
            f"{doing}: {reason.removeprefix('ERROR: ').removesuffix('.')}",
            "check the names; the first run with a package needs the package index",
        )
    return done.stdout
