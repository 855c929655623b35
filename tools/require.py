"""See that a virtual environment can be made here; install what Debian splits off, or say so.

    python3 tools/require.py [heritage]

`heritage`: for TensorFlow 2.15, and for Horovod, which is compiled.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERITAGE = sys.argv[1:] == ["heritage"]


def install(what: str, *packages: str) -> None:
    """Install Debian's packages where that is allowed, else say what is missing and end."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        names = " ".join(packages)
        sys.exit(f"error: {what} missing; install it: sudo apt-get install {names}")
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-y", "-qq", *packages], check=True)


if HERITAGE and sys.version_info[:2] != (3, 11):
    sys.exit(
        f"error: this is Python {sys.version_info[0]}.{sys.version_info[1]}, and TensorFlow 2.15 "
        "knows none after 3.11; name one: make PYTHON=python3.11 heritage"
    )
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit(
        f"error: this is Python {sys.version_info[0]}.{sys.version_info[1]} and the lab needs "
        "3.11 to 3.13; install one and name it: make PYTHON=python3.12 run"
    )
if importlib.util.find_spec("ensurepip") is None:
    install("Python's venv is", "python3-venv")
if HERITAGE:
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not (shutil.which("c++") and shutil.which("make") and header.exists()):
        install("a C++ compiler, make or Python's headers are", "g++", "make", "python3-dev")
