"""Checks of Python, the packages of `lab`, and TensorFlow."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Final

import lab
from lab.backends.python import base_environ
from lab.doctor.commands import CommandResult, run_command
from lab.doctor.model import Outcome, failed, ok, warning
from lab.runtimes import TENSORFLOW
from lab.shipped import DISTRIBUTION, install_command
from lab.text import short

OLDEST: Final = (3, 11)
UNTESTED: Final = (3, 14)
"""The first version that `lab` is not tested with."""

IMPORT_S: Final = 60.0
"""Time limit for importing TensorFlow, which takes 3 s on an idle host and 10 s on a busy one."""

_SCRIPT: Final = """\
import json
import tensorflow
build = tensorflow.sysconfig.get_build_info()
cuda = build.get("cuda_version", "") if build.get("is_cuda_build") else ""
print(json.dumps([tensorflow.__version__, cuda]))
"""


def judge_version(python_version: tuple[int, ...], pointer_bits: int) -> Outcome:
    """Check that this Python can run `lab` and TensorFlow."""
    what = f"{'.'.join(map(str, python_version))}, {pointer_bits} bit, {short(sys.executable)}"
    fix = "install Python 3.11, 3.12 or 3.13, then lab with it"
    if python_version < OLDEST:
        return failed(what, fix, "Python is too old")
    if pointer_bits != 64:  # noqa: PLR2004
        return failed(what, fix, "Python has 32 bits")
    if python_version >= UNTESTED:
        return warning(f"{what}: lab is not tested with this version", fix)
    return ok(what)


def requirements(project: Path | None = None) -> list[str]:
    """Return the requirements of `lab`, from `pyproject.toml` or its installed metadata.

    Args:
        project: The directory of `pyproject.toml`; by default the one that contains `lab`.
    """
    file = (project or Path(lab.__file__).parents[1]) / "pyproject.toml"
    # pip names an error in this file; the installed metadata has the same list.
    with suppress(FileNotFoundError, tomllib.TOMLDecodeError):
        described = tomllib.loads(file.read_text("utf-8")).get("project", {})
        if described.get("name") == DISTRIBUTION:
            return list(described["dependencies"])
    return metadata.requires(DISTRIBUTION) or []


def installed(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def package_faults(
    required: Sequence[str], version_of: Callable[[str], str | None] = installed
) -> tuple[int, list[str]]:
    """Return the number of packages that this host needs, and their errors.

    Args:
        required: Requirements, as `pyproject.toml` lists them.
        version_of: Returns the installed version of a package.
    """
    try:
        # Imported here: the package may be missing.
        from packaging.requirements import Requirement  # noqa: PLC0415
    except ModuleNotFoundError:
        return 1, ["packaging is missing"]
    faults = []
    needed = [
        each
        for each in map(Requirement, required)
        if not each.marker or each.marker.evaluate({"extra": ""})
    ]
    for requirement in needed:
        found = version_of(requirement.name)
        if found is None:
            faults.append(f"{requirement.name} is missing")
        elif not requirement.specifier.contains(found, prereleases=True):
            faults.append(f"{requirement.name} {found} is not {requirement.specifier}")
    return len(needed), faults


def judge_packages(packages: tuple[int, Sequence[str]]) -> Outcome:
    """Check that the packages of `lab` are installed at the required versions."""
    needed, faults = packages
    if faults:
        fix = f"`{install_command()}`"
        return failed(short("; ".join(faults)), fix, "packages", stops=True)
    return ok(f"all {needed}, at the required versions")


def import_tensorflow() -> CommandResult | None:
    """Import TensorFlow in another process, without GPUs; return None if it is not installed."""
    if importlib.util.find_spec("tensorflow") is None:
        return None
    variables = {**base_environ(), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return run_command([sys.executable, "-P", "-c", _SCRIPT], IMPORT_S, variables)


def tensorflow_build(imported: CommandResult | None) -> tuple[str, str]:
    """Return the version of TensorFlow and of its CUDA; "" for what is missing."""
    if imported is None or imported.code != 0:
        return "", ""
    version, cuda = json.loads(imported.out.splitlines()[-1])
    return version, cuda


def judge_tensorflow(tensorflow: CommandResult | None) -> Outcome:
    """Check that programs of the local backend can import TensorFlow.

    Args:
        tensorflow: The result of its import; None if it is not installed.
    """
    fix = f"`{install_command('tensorflow')}`; containers have their own TensorFlow"
    if tensorflow is None:
        return warning("not installed", fix, "no TensorFlow")
    if tensorflow.code is None:
        what = f"the import takes more than {IMPORT_S:.0f} s"
        return failed(what, "stop other programs that use the CPUs", "TensorFlow")
    if tensorflow.code != 0:
        what = f"the import fails: {short(tensorflow.last_line, 200)}"
        return failed(what, fix, "TensorFlow")
    version, cuda = tensorflow_build(tensorflow)
    what = f"{short(version)}, built for {f'CUDA {short(cuda)}' if cuda else 'CPUs'}"
    if not version.startswith(TENSORFLOW.pin.removesuffix("*")):
        return warning(f"{what}: lab is tested with {TENSORFLOW.pin}", fix)
    return ok(what)
