"""Check that this host can make a virtual environment, and name the missing Debian packages.

    python3 tools/require.py [heritage]

`heritage` also checks what TensorFlow 2.15 and the build of Horovod need. Run by root with
`CI=true`, as `.ci/run` does, it installs the packages.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERITAGE = sys.argv[1:] == ["heritage"]


def require(missing: str, *packages: str) -> None:
    """Exit with an error that names the packages; in CI, install them."""
    is_root = os.geteuid() == 0
    if not (is_root and os.environ.get("CI") == "true" and shutil.which("apt-get")):
        sudo = "" if is_root else "sudo "
        names = " ".join(packages)
        command = f"{sudo}apt-get update && {sudo}apt-get install {names}"
        sys.exit(f"error: missing: {missing}; install it, on Debian and Ubuntu with: {command}")
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-y", "-qq", *packages], check=True)


if HERITAGE and sys.version_info[:2] != (3, 11):
    sys.exit(
        f"error: this is Python {sys.version_info[0]}.{sys.version_info[1]}, and TensorFlow 2.15 "
        "needs 3.11; install it and run make PYTHON=python3.11 heritage"
    )
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit(
        f"error: this is Python {sys.version_info[0]}.{sys.version_info[1]} and the lab needs "
        "3.11 to 3.13; install one, for example 3.12, and run make PYTHON=python3.12 run"
    )
if importlib.util.find_spec("ensurepip") is None:
    require("Python's venv module", "python3-venv")
if HERITAGE:
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not (shutil.which("c++") and shutil.which("make") and header.exists()):
        require("a C++ compiler, make or Python's headers", "g++", "make", "python3-dev")
