"""`tools/install.py`: uv downloads as pip is set up to, and pip takes the place of a missing uv."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.commands import ROOT
from tests.support.conditions import lacking
from tools.install import uv_variables

SITE = Path(sysconfig.get_path("purelib"))


def test_uv_gets_the_settings_of_pip() -> None:
    settings = """\
:env:.cert=''
:env:.default-timeout='180'
:env:.find-links='/wheels /more'
download.index-url='https://download.example/simple'
global.cert='/etc/ssl/ours.crt'
global.constraint='/etc/constraints.txt'
global.extra-index-url='\\nfile:///a/simple\\nfile:///b/simple'
global.find-links='/overridden'
global.index-url='https://global.example/simple?a=b'
global.proxy='http://proxy.example:3128'
install.index-url='https://install.example/simple?a=b'
install.trusted-host='a.example b.example:8443'
"""
    assert uv_variables(settings) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INDEX_URL": "https://install.example/simple?a=b",
        "UV_EXTRA_INDEX_URL": "file:///a/simple file:///b/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "a.example b.example:8443",
        "UV_HTTP_TIMEOUT": "180",
        "SSL_CERT_FILE": "/etc/ssl/ours.crt",
        "ALL_PROXY": "http://proxy.example:3128",
    }


def a_wheel(folder: Path) -> Path:
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        about = "tiny-1.0.dist-info"
        wheel.writestr("tiny.py", "")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "tiny.py,,\n")
    return path


def an_environment(folder: Path, *, uv: bool) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "pip").symlink_to(SITE / "pip")
    if uv:
        (folder / "bin/uv").symlink_to(Path(sysconfig.get_path("scripts")) / "uv")
        for path in SITE.glob("uv*"):
            (site / path.name).symlink_to(path)
    return folder / "bin/python"


@pytest.mark.parametrize(
    ("uv", "own", "reason"),
    [
        (True, {}, None),
        (True, {"UV_FIND_LINKS": "/nowhere"}, "uv fails"),
        (False, {}, "uv cannot be installed"),
    ],
    ids=["uv", "a setting of uv's own", "no uv on the index"],
)
def test_uv_or_pip_installs_what_has_the_locked_hash(
    tmp_path: Path, own: dict[str, str], reason: str | None, *, uv: bool
) -> None:
    """The only index is a directory that pip's variables name."""
    if uv and find_spec("uv") is None:
        lacking("this environment has no uv, so only pip is tested")
    wheel = a_wheel(tmp_path)
    python = an_environment(tmp_path / "environment", uv=uv)
    variables = {name: text for name, text in os.environ.items() if not name.startswith("UV_")}
    variables |= {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_CONFIG_FILE": "/dev/null",
    }
    variables |= {"UV_CACHE_DIR": str(tmp_path / "cache"), **own}
    lock = tmp_path / "lock.txt"

    def install(hashes: str) -> subprocess.CompletedProcess[str]:
        lock.write_text(f"tiny==1.0{hashes}\n")
        command = [python, ROOT / "tools/install.py", lock]
        return subprocess.run(
            command, env=variables, stderr=subprocess.PIPE, text=True, check=False
        )

    def is_installed() -> bool:
        return subprocess.run([python, "-B", "-c", "import tiny"], check=False).returncode == 0

    for wrong in ("", f" --hash=sha256:{'0' * 64}"):
        assert install(wrong).returncode != 0
        assert not is_installed()
    done = install(f" --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}")
    assert done.returncode == 0, done.stderr
    assert is_installed()
    assert list(tmp_path.rglob("tiny.*.pyc"))
    notices = [
        line.partition(":")[0] for line in done.stderr.splitlines() if "pip installs" in line
    ]
    assert notices == ([] if reason is None else [reason])
