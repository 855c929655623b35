"""See that a virtual environment can be made here; install what Debian splits off, or say so."""

import importlib.util
import os
import shutil
import subprocess
import sys

if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit(
        f"error: this is Python {sys.version_info[0]}.{sys.version_info[1]} and the lab needs "
        "3.11 to 3.13; install one and name it: make PYTHON=python3.12 run"
    )
if importlib.util.find_spec("ensurepip") is None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit("error: Python's venv is missing; install it: sudo apt-get install python3-venv")
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-y", "-qq", "python3-venv"], check=True)
