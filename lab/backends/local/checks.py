"""Checks of what processes need: TensorFlow, and namespaces of the kernel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from lab.backends.checks import Outcome, failed, ok, skipped, warning
from lab.base.shipped import install_command
from lab.base.text import short
from lab.base.variables import LAB_LOCAL
from lab.protocol.runtimes import TENSORFLOW

_IMPORT_S: Final = 60.0
"""Time limit for importing TensorFlow, which takes 3 s on an idle host and 10 s on a busy one."""

LIMIT_S: Final = _IMPORT_S + 10.0
"""Time limit of the check of TensorFlow, in seconds."""

_SCRIPT: Final = """\
import tensorflow
print(tensorflow.__version__, len(tensorflow.config.list_physical_devices("GPU")))
"""

_SWITCHES: Final = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", 0),
    ("kernel/unprivileged_userns_clone", "0", 1),
    ("user/max_user_namespaces", "0", 10000),
    ("user/max_net_namespaces", "0", 10000),
)
"""The kernel's switches for namespaces, the value that forbids them, and one that allows them."""


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
    fix = f"`{install_command('tensorflow')}`; containers have their own TensorFlow"
    try:
        imported = import_tensorflow(variables)
    except subprocess.TimeoutExpired:
        what = f"the import takes more than {_IMPORT_S:.0f} s"
        return failed(what, "stop other programs that use the CPUs")
    if imported.returncode:
        printed = f"{imported.stdout}\n{imported.stderr}".strip().rpartition("\n")[2]
        return failed(f"the import fails: {short(printed.strip() or 'no reason given', 200)}", fix)
    version, number = imported.stdout.split()[-2:]
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


def import_tensorflow(environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Import TensorFlow in another process, which prints its version and its number of GPUs.

    Raises:
        subprocess.TimeoutExpired: It took longer than `_IMPORT_S`.
    """
    return subprocess.run(
        [sys.executable, "-P", "-c", _SCRIPT],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_IMPORT_S,
        env=environ,
        check=False,
    )


def check_namespaces(why_none: str | None, switches: Path = Path("/proc/sys")) -> Outcome:
    """Check that a pseudo-node can have its own network.

    Args:
        why_none: Why it cannot; None if a trial succeeded.
        switches: The directory of the kernel's switches.
    """
    if why_none is None:
        return ok("every pseudo-node gets its own hostname and network")
    closed = [
        f"{path.replace('/', '.')}={allows}"
        for path, forbids, allows in _SWITCHES
        if _text_of(switches / path) == forbids
    ]
    fix = "if this is a container, allow user namespaces in it; otherwise use `--backend compose`"
    if "util-linux" in why_none:
        fix = "`sudo apt-get install util-linux`"
    elif LAB_LOCAL in why_none:
        fix = f"`unset {LAB_LOCAL}`"
    elif closed:
        fix = f"`sudo sysctl -w {' '.join(closed)}`"
    return warning(
        f"none ({short(why_none, 120)}): all local tasks share the loopback, links have no effect, "
        "and TensorFlow's servers listen on every interface of this host",
        fix,
    )


def _text_of(file: Path) -> str:
    with suppress(OSError):
        return file.read_text("ascii").strip()
    return ""
