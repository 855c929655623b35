"""`tools/require.py`, which names the packages that `make` needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.commands import python
from tests.support.engine import ROOT

WITHOUT_VENV = f"""\
import importlib.util, os, runpy, sys
importlib.util.find_spec = lambda name: None
user = int(sys.argv[1])
os.geteuid = lambda: user
sys.argv = ["require.py"]
runpy.run_path({str(ROOT / "tools/require.py")!r}, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("ci", "user", "installs"),
    [("true", 0, True), ("true", 1000, False), (None, 0, False), (None, 1000, False)],
)
def test_packages_are_installed_only_by_root_in_ci(
    tmp_path: Path, ci: str | None, user: int, *, installs: bool
) -> None:
    called = tmp_path / "called"
    apt_get = tmp_path / "apt-get"
    apt_get.write_text(f'#!/bin/sh\necho "$@" >> {called}\n')
    apt_get.chmod(0o755)
    variables = {name: text for name, text in os.environ.items() if name != "CI"}
    variables |= {"PATH": f"{tmp_path}:{variables['PATH']}"} | ({"CI": ci} if ci else {})
    done = python("-c", WITHOUT_VENV, str(user), env=variables)
    assert (done.returncode, called.exists()) == ((0, True) if installs else (1, False))
    if installs:
        assert called.read_text() == "update -qq\ninstall -y -qq python3-venv\n"
    else:
        sudo = "" if user == 0 else "sudo "
        assert done.stderr == (
            "error: missing: Python's venv module; install it, on Debian and Ubuntu with:"
            f" {sudo}apt-get update && {sudo}apt-get install python3-venv\n"
        )
