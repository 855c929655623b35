"""Checks of this Python: the packages of `lab`, without needing one of them, and TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Final

from lab.doctor.model import Outcome, failed, ok, skipped, warning
from lab.runtimes import TENSORFLOW
from lab.shipped import CLONE, DISTRIBUTION, install_command
from lab.text import short

_IMPORT_S: Final = 60.0
"""Time limit for importing TensorFlow, which takes 3 s on an idle host and 10 s on a busy one."""

LIMIT_S: Final = _IMPORT_S + 10.0
"""Time limit of the check of TensorFlow, in seconds."""

_SCRIPT: Final = """\
import tensorflow
print(tensorflow.__version__, len(tensorflow.config.list_physical_devices("GPU")))
"""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command.

    Attributes:
        code: Its exit code; 127 if there is no such command, None if it exceeded its time limit.
        out: Its stdout.
        err: Its stderr.
    """

    code: int | None
    out: str = ""
    err: str = ""

    @property
    def last_line(self) -> str:
        """The last line of its output, which has the reason of a failure."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1].strip() if lines else "no reason given"


def run_command(
    command: Sequence[str], limit_s: float, environ: Mapping[str, str] | None = None
) -> CommandResult:
    """Run a command that changes nothing, and kill it after its time limit."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            env=environ,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CommandResult(None)
    except FileNotFoundError:
        return CommandResult(127, err=f"{command[0]}: no such command")
    return CommandResult(done.returncode, done.stdout, done.stderr)


def requirements() -> Sequence[str]:
    """Return the requirements of `lab`: those of the clone, or of the installed package."""
    if CLONE is None:
        return metadata.requires(DISTRIBUTION) or []
    import tomllib  # noqa: PLC0415  (each run with processes imports this module)

    project = tomllib.loads((CLONE / "pyproject.toml").read_text("utf-8"))["project"]
    return [str(requirement) for requirement in project["dependencies"]]


def installed(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_packages(
    required: Sequence[str], version_of: Callable[[str], str | None] = installed
) -> Outcome:
    """Check that packages are installed at the required versions.

    Args:
        required: Requirements, as `pyproject.toml` lists them.
        version_of: Returns the installed version of a package.
    """
    fix = f"`{install_command()}`"
    try:
        # Imported here: the package may be missing.
        from packaging.requirements import Requirement  # noqa: PLC0415
    except ModuleNotFoundError:
        return failed("packaging is missing", fix, stops=True)
    needed = [
        requirement
        for requirement in map(Requirement, required)
        if not requirement.marker or requirement.marker.evaluate({"extra": ""})
    ]
    faults = []
    for requirement in needed:
        version = version_of(requirement.name)
        if version is None:
            faults.append(f"{requirement.name} is missing")
        elif not requirement.specifier.contains(version, prereleases=True):
            faults.append(f"{requirement.name} {version} is not {requirement.specifier}")
    if faults:
        return failed(short("; ".join(faults)), fix, stops=True)
    return ok(f"all {len(needed)}, at the required versions")


def check_tensorflow(environ: Mapping[str, str], *, gpus: bool) -> Outcome:
    """Check that programs can import TensorFlow.

    Args:
        environ: The environment variables of programs.
        gpus: Whether TensorFlow must also find a GPU.
    """
    if find_spec("tensorflow") is None:
        return skipped("not installed for this Python")
    variables = {**environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if not gpus:
        variables["CUDA_VISIBLE_DEVICES"] = "-1"
    imported = run_command([sys.executable, "-P", "-c", _SCRIPT], _IMPORT_S, variables)
    fix = f"`{install_command('tensorflow')}`; containers have their own TensorFlow"
    if imported.code is None:
        what = f"the import takes more than {_IMPORT_S:.0f} s"
        return failed(what, "stop other programs that use the CPUs")
    if imported.code != 0:
        return failed(f"the import fails: {short(imported.last_line, 200)}", fix)
    version, number = imported.out.split()[-2:]
    if gpus and number == "0":
        return failed(
            f"{short(version)} finds no GPU: it was built for CPUs, or a library of CUDA is "
            "missing",
            f"`pip install 'tensorflow[and-cuda]=={TENSORFLOW.pin}'` into this Python; containers "
            "have their own TensorFlow",
        )
    if not version.startswith(TENSORFLOW.pin.removesuffix("*")):
        return warning(f"{short(version)}: lab is tested with {TENSORFLOW.pin}", fix)
    return ok(f"{short(version)}{', which finds the GPUs' if gpus else ''}")
