"""Install locked packages into the environment of this Python: by uv, else by pip.

    .venv/bin/python tools/install.py requirements/dev.txt [PROJECT]

uv downloads several packages at once and installs in seconds what takes pip minutes. pip installs
uv itself into the environment, from the same index and with the same check of hashes. Where it
cannot, and where uv fails, pip installs the packages.
PROJECT is a directory: its package is installed as an editable one.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

UV_LOCK: Final = Path(__file__).resolve().parents[1] / "requirements/uv.txt"
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")

# A user's own UV_INDEX and UV_DEFAULT_INDEX go before the older names here. pip's constraints are
# left out on purpose: a lock names each version, and a constraint could only forbid it.
VARIABLES: Final[Mapping[str, str]] = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "no-index": "UV_NO_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
"""The variable by which uv gets a setting of pip."""


def uv_variables(settings: str) -> dict[str, str]:
    """Return the variables by which uv downloads as pip does; uv reads none of pip's settings.

    Args:
        settings: The output of `pip config list`.
    """
    # Any index may have the locked version, as for pip; the hash decides.
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    lines = [line.partition("=") for line in settings.splitlines()]
    for section in ("global.", "install.", ":env:."):  # the later one overrides the earlier one
        for name, _, value in lines:
            setting = name.removeprefix(section)
            if setting != name and setting in VARIABLES and (given := ast.literal_eval(value)):
                separator = "," if setting == "find-links" else " "
                found[VARIABLES[setting]] = separator.join(given.split())
    return found


def has_uv() -> bool:
    """Whether the environment has the locked uv, which is installed if it is missing."""
    locked = UV_LOCK.read_text(encoding="utf-8").split()[0].removeprefix("uv==")
    try:
        if metadata.version("uv") == locked:
            return True
    except metadata.PackageNotFoundError:
        pass
    options = ("--quiet", "--only-binary=:all:", "--require-hashes", f"--requirement={UV_LOCK}")
    return _pip(*options) == 0  # quiet twice: only errors


def main(lock: str, *project: str) -> int:
    """Install the packages of a lock, and a project; return the exit code of uv or pip."""
    locked = ("--require-hashes", f"--requirement={lock}")
    own = [("--no-deps", "--no-build-isolation", f"--editable={each}") for each in project]
    reason = "uv cannot be installed"
    if has_uv():
        settings = subprocess.check_output([*PIP, "config", "list"], text=True)
        variables = {**uv_variables(settings), **os.environ}
        # A task's program writes no bytecode, and would compile TensorFlow in each run.
        if not any(_uv(variables, *each) for each in [(*locked, "--compile-bytecode"), *own]):
            return 0
        reason = "uv fails"
    print(f"{reason}: pip installs the packages, which takes minutes longer", file=sys.stderr)
    return next(filter(None, (_pip(*each) for each in [locked, *own])), 0)


def _uv(variables: Mapping[str, str], *arguments: str) -> int:
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    return subprocess.run([*command, *arguments], env=variables, check=False).returncode


def _pip(*arguments: str) -> int:
    return subprocess.run([*PIP, "install", "--quiet", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
