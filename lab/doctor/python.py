"""Python, the packages of `lab`, and TensorFlow."""

from __future__ import annotations

import importlib.util
import json
import struct
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Final

import lab
from lab.doctor.asking import Answer, ask
from lab.doctor.model import Finding, Need, Verdict
from lab.task.text import short

AREA: Final = "Python"
OLDEST: Final = (3, 11)
UNTRIED: Final = (3, 14)
"""The first version that `lab` was not tried with."""

IMPORT_S: Final = 60.0
"""Seconds in which TensorFlow must be imported: 3 s on an idle machine, 10 s on a busy one."""

_LAB: Final = "lab"
_TENSORFLOW: Final = "tensorflow"
_INSTALL: Final = "-m pip install --require-hashes -r requirements/"

_SCRIPT: Final = """\
import json
import tensorflow
build = tensorflow.sysconfig.get_build_info()
cuda = build.get("cuda_version", "") if build.get("is_cuda_build") else ""
print(json.dumps([tensorflow.__version__, cuda]))
"""


def version(
    found: Sequence[int] = tuple(sys.version_info[:3]), bits: int = struct.calcsize("P") * 8
) -> Finding:
    """Whether this Python can run `lab` and TensorFlow.

    Args:
        found: Its version.
        bits: Size of its pointers.
    """
    what = f"{'.'.join(map(str, found))}, {bits} bit, {short(sys.executable)}"
    mend = "install Python 3.11, 3.12 or 3.13, then `make install PYTHON=python3.11`"
    if tuple(found) < OLDEST:
        verdict, blocks = Verdict.FAILED, "Python is too old"
    elif bits != 64:  # noqa: PLR2004
        verdict, blocks = Verdict.FAILED, "Python has 32 bits"
    elif tuple(found) >= UNTRIED:
        return Finding(AREA, "version", Verdict.WARNING, f"{what}: lab was not tried with it", mend)
    else:
        return Finding(AREA, "version", Verdict.OK, what)
    return Finding(AREA, "version", verdict, what, mend, blocks=blocks)


def requirements(project: Path | None = None) -> list[str]:
    """What `lab` requires, as `pyproject.toml` or its own installed metadata say.

    Args:
        project: The directory of `pyproject.toml`; by default the one that `lab` lies in.
    """
    file = (project or Path(lab.__file__).parents[1]) / "pyproject.toml"
    if file.is_file():
        described = tomllib.loads(file.read_text("utf-8")).get("project", {})
        if described.get("name") == _LAB:
            return list(described["dependencies"])
    return metadata.requires(_LAB) or []


def installed(package: str) -> str | None:
    """The version of a package that is installed; None where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def packages(
    required: Callable[[], Sequence[str]] = requirements,
    version_of: Callable[[str], str | None] = installed,
) -> Finding:
    """Whether the packages of `lab` are there, at the versions that it was tried with."""
    mend = f"`{sys.executable} {_INSTALL}host.txt`, or `make install`"
    try:
        # Imported here: it is one of those that may be missing.
        from packaging.requirements import Requirement  # noqa: PLC0415
    except ModuleNotFoundError:
        return Finding(
            AREA, "packages", Verdict.FAILED, "packaging is missing", mend, blocks="packages"
        )
    faults = []
    count = 0
    for text in required():
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        count += 1
        found = version_of(requirement.name)
        if found is None:
            faults.append(f"{requirement.name} is missing")
        elif not requirement.specifier.contains(found, prereleases=True):
            faults.append(f"{requirement.name} {found} is not {requirement.specifier}")
    if faults:
        return Finding(
            AREA, "packages", Verdict.FAILED, short("; ".join(faults)), mend, blocks="packages"
        )
    return Finding(AREA, "packages", Verdict.OK, f"all {count}, at the versions that lab asks for")


def tensorflow(pin: str, look: Callable[[], Answer | None] | None = None) -> tuple[Finding, bool]:
    """Whether programs can import TensorFlow here, as the local backend has them do.

    Args:
        pin: The version that `lab` was tried with, `2.21.*`.
        look: Imports it; None where it is not installed.

    Returns:
        The finding, and whether that TensorFlow was built for CUDA.
    """

    def finding(verdict: Verdict, what: str, mend: str = "", blocks: str = "") -> Finding:
        return Finding(AREA, "TensorFlow", verdict, what, mend, Need.LOCAL, blocks)

    mend = f"`{sys.executable} {_INSTALL}tensorflow.txt`; containers have their own"
    try:
        answer = (look or import_tensorflow)()
    except TimeoutError:
        answer = Answer(None)
    if answer is None:
        return finding(Verdict.WARNING, "not installed", mend, "no TensorFlow"), False
    if answer.code is None:
        what = f"importing it takes more than {IMPORT_S:.0f} s"
        return finding(
            Verdict.FAILED, what, "end what keeps this machine busy", "TensorFlow"
        ), False
    if answer.code != 0:
        what = f"it cannot be imported: {short(answer.last, 200)}"
        return finding(Verdict.FAILED, what, mend, "TensorFlow"), False
    found, cuda = json.loads(answer.out.splitlines()[-1])
    what = f"{short(found)}, built for {f'CUDA {short(cuda)}' if cuda else 'CPUs'}"
    if not found.startswith(pin.removesuffix("*")):
        return finding(Verdict.WARNING, f"{what}: lab was tried with {pin}", mend), bool(cuda)
    return finding(Verdict.OK, what), bool(cuda)


def import_tensorflow(timeout_s: float = IMPORT_S) -> Answer | None:
    """Import it in a process of its own, away from the cards; None where it is not installed."""
    if importlib.util.find_spec(_TENSORFLOW) is None:
        return None
    # Imported here: it is the backend's way to start a Python, and needs its packages.
    from lab.backends.local.processes import environ  # noqa: PLC0415

    variables = {**environ(), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return partial(ask, environ=variables)([sys.executable, "-P", "-c", _SCRIPT], timeout_s)
