"""The files that come with lab beside its package, how lab was installed, and its extras.

In a clone they are at the top level. A wheel has them in `lab/shipped/`.
"""

from __future__ import annotations

import filecmp
import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import lab
from lab.base.errors import LabError

DISTRIBUTION: Final = "gpulab"
PACKAGE: Final = Path(lab.__file__).parent
_WHEEL: Final = PACKAGE / "shipped"

CLONE: Final = None if _WHEEL.is_dir() else PACKAGE.resolve().parent
"""The directory of the clone that contains this package; None: lab is installed from a wheel."""

SHIPPED: Final = CLONE or _WHEEL.resolve()
"""The directory of the shipped files."""

BASE_IMAGE_TOOL: Final = "tools/base-image.sh" if CLONE else str(SHIPPED / "tools/base-image.sh")
"""The script that makes a base image without a registry."""

_LOCKS: Final = {"": "host", "report": "host", "simulation": "host"}
"""The file in `requirements/` of a clone for each extra, if it has another name."""


def install_command(extra: str = "") -> str:
    """Return the command that installs lab with an extra, in the same way as lab itself.

    Args:
        extra: The extra; "": lab alone.
    """
    if CLONE is not None:
        if not extra and sys.prefix == sys.base_prefix:  # the system's Python stays as it is
            clone = shlex.quote(str(CLONE))
            return f"make -C {clone} install && . {clone}/.venv/bin/activate"
        locked = shlex.quote(str(CLONE / "requirements" / f"{_LOCKS.get(extra, extra)}.txt"))
        return f"{shlex.quote(sys.executable)} -m pip install --require-hashes -r {locked}"
    wanted = shlex.quote(requirement(extra))
    prefix = Path(sys.prefix)
    if (prefix / "uv-receipt.toml").exists():
        return f"uv tool install {wanted}"
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx install --force {wanted}"
    if prefix.parent.name.startswith("archive-v"):  # the cache of uv
        return f"uvx --from {wanted} lab"
    return f"{shlex.quote(sys.executable)} -m pip install {wanted}"


def requirement(extra: str = "") -> str:
    """Return pip's requirement for lab with an extra, from where lab was installed."""
    wanted = f"{DISTRIBUTION}[{extra}]" if extra else DISTRIBUTION
    return f"{wanted} @ {url}" if (url := _source()) else wanted


def origin() -> str:
    """Return where lab was installed from, for `lab --version`."""
    return f"from the clone {CLONE}" if CLONE else f"installed in {PACKAGE.parent}"


def _source() -> str:
    """Return the address of the wheel that lab was installed from; "": an index."""
    with suppress(metadata.PackageNotFoundError, ValueError, AttributeError):
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        return str(json.loads(text or "{}").get("url", ""))
    return ""


def files_of(parts: Iterable[str], root: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Yield the files of some parts: the path in a clone, and the path of the file here.

    Args:
        parts: Files and directories as in a clone; `lab` is the package.
        root: The directory of the parts; None: the shipped files.
    """
    for part in parts:
        start = PACKAGE if part == "lab" and root is None else (root or SHIPPED) / part
        for path in [start] if start.is_file() else sorted(start.rglob("*")):
            inside = path.relative_to(start)
            # Hidden files belong to an editor, and a wheel's package contains the shipped files.
            skipped = any(name.startswith((".", "__pycache__")) for name in inside.parts)
            if path.is_file() and not skipped and (part, *inside.parts)[:2] != ("lab", _WHEEL.name):
                yield (Path(part) / inside).as_posix(), path


def copy_exactly(target: Path, parts: Iterable[str]) -> None:
    """Make a directory contain the files of some parts, as in a clone, and no others.

    Raises:
        OSError: The directory cannot be written.
    """
    wanted = dict(files_of(parts))
    for path in target.rglob("*"):
        if path.is_file() and path.relative_to(target).as_posix() not in wanted:
            path.unlink()
    for name, source in wanted.items():
        copied = target / name
        if not (copied.is_file() and filecmp.cmp(source, copied, shallow=False)):
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copied)


MODULES: Final[Mapping[str, frozenset[str]]] = {
    "report": frozenset(
        {"markupsafe", "matplotlib", "numpy", "pandas", "scipy", "tensorboard", "tornado"}
    ),
    "simulation": frozenset({"simpy"}),
    "class": frozenset(
        {"cryptography", "dockerspawner", "jupyterhub", "segno", "tornado", "traitlets"}
    ),
    "kubernetes": frozenset({"kubernetes"}),
    "notebooks": frozenset({"IPython"}),
    "tensorflow": frozenset({"tensorflow"}),
}
"""Extra in pyproject.toml to the modules of it that `lab` imports."""


@contextmanager
def named_extras() -> Iterator[None]:
    """Name the extra if a package of it is missing. It also works as a decorator.

    Raises:
        LabError: The block imports a module of an extra that is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        for extra, modules in MODULES.items():
            if module in modules:
                raise _missing(module, extra) from error
        raise


def check_extra(extra: str) -> None:
    """Check before long work that the packages of an extra are installed.

    Raises:
        LabError: One is missing.
    """
    for module in sorted(MODULES[extra]):
        if find_spec(module) is None:
            raise _missing(module, extra)


def _missing(module: str, extra: str) -> LabError:
    return LabError(
        f"this needs {module}, a package of the extra `{extra}`",
        f"install it with `{install_command(extra)}`",
    )
