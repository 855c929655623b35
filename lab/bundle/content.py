"""What a bundle has beside images: wheels, the files of the project, and the documents."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from lab.bundle.archive import PARTS
from lab.classroom.config import ClassConfig
from lab.errors import InputError, LabError
from lab.log import LOG
from lab.project import find_root
from lab.runtimes import Runtime
from lab.shipped import CLONE, SHIPPED, files_of, requirement
from lab.text import short

_VENV: Final = ".venv"
_PIP_FIX: Final = "check the network, or the settings of pip"
_DOCUMENTS: Final = "documents"
_SETS: Final = (("notebooks", "jupyterlab"), ("tensorflow", "tensorflow"), ("host", ""))
"""The files in `requirements/` for lab, the largest first, and what only it has of the others."""


@dataclass(frozen=True, slots=True)
class Wheels:
    """The wheels of one virtual environment.

    Attributes:
        environment: Its directory: `.venv`, or that of a runtime.
        locks: The names of the files in `requirements/` that it gets.
    """

    environment: str
    locks: tuple[str, ...]


def wheel_sets(runtimes: Iterable[Runtime], *, for_class: bool) -> list[Wheels]:
    """Return what a room gets: the packages in use here, and those of the runtimes.

    A runtime with Horovod is left out: its packages are compiled.
    """
    own = next(name for name, module in _SETS if not module or find_spec(module))
    more = ("class",) if for_class else ()
    sets = [Wheels(_VENV, (own, *more))]
    for each in runtimes:
        if each.environment and not each.horovod:
            sets.append(Wheels(each.environment, (each.requirements(gpus=False),)))
    return sets


def download(sets: Sequence[Wheels], folder: Path) -> None:
    """Download wheels for this Python and platform, and build that of lab.

    Args:
        sets: The wheels. pip refuses those with other hashes than the locked ones.
        folder: The directory; each environment has a directory in it.

    Raises:
        LabError: A wheel cannot be downloaded, or that of lab cannot be built.
    """
    for each in sets:
        LOG.info(f"downloading the wheels of {each.environment}: {', '.join(each.locks)}")
        files = [SHIPPED / "requirements" / f"{name}.txt" for name in each.locks]
        locked = [f"--requirement={file}" for file in files]
        _pip_download(folder / each.environment, "--require-hashes", *locked)
    own = folder / _VENV
    if CLONE is None:
        fix = "put the wheel of lab back where it was installed from, or use a clone"
        _pip_download(own, requirement(), fix=fix)
        return
    LOG.info("building the wheel of lab")
    build = ["hatchling", "build", "--target=wheel", f"--directory={own}"]
    fix = f"install hatchling into {sys.prefix}: `make install` does"
    _run("building the wheel of lab", [sys.executable, "-m", *build], fix, cwd=CLONE)


def project_files(
    config: Path, classroom: tuple[Path, ClassConfig] | None
) -> Iterator[tuple[str, Path]]:
    """Yield the files of a project: their paths in a bundle, and where they are.

    What the project of the config lacks comes from the shipped files.

    Args:
        config: The cluster config.
        classroom: The file of the class config, and its content; None: no class.

    Raises:
        InputError: The class is not in the directory of the project.
    """
    root = find_root(config).resolve()
    found: dict[str, Path] = {}
    for part in PARTS:
        start = root if (root / part).exists() else SHIPPED
        found |= {
            name: path
            for name, path in files_of([part], start)
            if "runs" not in Path(name).parts and not path.is_symlink()
        }
    own = [config] if classroom is None else [config, classroom[0], classroom[1].cluster]
    for path in own:
        whole = path.resolve()
        if whole.is_relative_to(root):
            found[whole.relative_to(root).as_posix()] = whole
        elif path is config:
            found[path.name] = whole
        else:
            raise InputError(
                f"{short(str(path))} is not in the project {short(str(root))}",
                "put the class config and its cluster config beside `scripts/`",
            )
    yield from sorted(found.items())


def documents(folder: Path) -> tuple[list[tuple[str, Path]], str]:
    """Return the documents: their paths in a bundle and where they are; and the first page.

    In a clone with the development tools, they are a site that a browser opens without a network,
    with its search. Otherwise they are Markdown.

    Args:
        folder: A directory for the site.

    Raises:
        LabError: The site cannot be built.
    """
    if CLONE is None or not find_spec("mkdocs"):
        LOG.info("the documents are Markdown: a site needs a clone with the development tools")
        pages = [(f"{_DOCUMENTS}/{name}", path) for name, path in files_of(["README.md", "docs"])]
        return pages, "docs/index.md"
    LOG.info("building the documents' site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", f"--site-dir={folder}"]
    _run("building the documents", command, "see `make docs`", cwd=CLONE)
    # The maps are for search engines, and have the date of the build.
    pages = [
        (f"{_DOCUMENTS}/{path.relative_to(folder).as_posix()}", path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("sitemap.xml")
    ]
    return pages, "index.html"


def _pip_download(folder: Path, *arguments: str, fix: str = _PIP_FIX) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", f"--dest={folder}", *arguments]
    _run("downloading wheels", command, fix)


def _run(doing: str, command: Sequence[str], fix: str, cwd: Path | None = None) -> None:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "SOURCE_DATE_EPOCH": "1580601600"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").split("\n")
        last = next((each for each in reversed(lines) if "error" in each.lower()), lines[-1])
        raise LabError(f"{doing} failed: {short(last.strip() or 'without a message')}", fix)
