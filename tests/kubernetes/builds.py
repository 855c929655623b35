"""Kubernetes' programs for the tests, each set compiled once, in a small Debian of its release."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support import debian_engine as debian
from tests.support import engine as engines

HERE: Final = Path(__file__).parent


@dataclass(frozen=True)
class Build:
    """A set of programs and the script that compiles them."""

    name: str
    suite: str
    version: str
    packages: tuple[str, ...]
    files: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Twelve digits that change with the script, its files and its packages."""
        digest = hashlib.sha256(repr(self).encode())
        for name in (f"{self.name}.sh", *self.files):
            digest.update((HERE / name).read_bytes())
        return digest.hexdigest()[:12]


CONTROL_PLANE: Final = Build(
    "control-plane",
    "bookworm",
    "1.20.2",
    # gcc compiles the program of a pod's first container, which holds the pod's network.
    ("ca-certificates", "dpkg-dev", "etcd-server", "gcc", "golang-go", "libc6-dev"),
)

CUSTOM_RESOURCES: Final = Build(
    "custom-resources",
    "sid",
    "",
    ("ca-certificates", "golang-go", "golang-k8s-apiextensions-apiserver-dev"),
)


def built(what: Build) -> Path:
    """The directory of the programs, from the user's cache or compiled now, or `NoEngine`."""
    folder = cache() / "-".join(filter(None, (what.name, what.version, what.digest)))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _beside(folder, ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _build(what, folder)
    return folder


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lab/kubernetes"


def _beside(folder: Path, ending: str) -> Path:
    """A file beside a directory; the version in the directory's name has dots."""
    return folder.with_name(f"{folder.name}{ending}")


def _build(what: Build, folder: Path) -> None:
    say(f"building {folder.name} in a Debian {what.suite}, once; this takes minutes")
    with debian.a_root(what.suite, what.packages) as root:
        sources = (root / "etc/apt/sources.list").read_text().splitlines()
        with_source = [line.replace("deb ", "deb-src ", 1) for line in sources]
        (root / "etc/apt/sources.list").write_text("\n".join([*sources, *with_source, ""]))
        for name in (f"{what.name}.sh", *what.files):
            shutil.copy(HERE / name, root)
        log = _beside(folder, ".log")
        _compile(what, root, log)
        # Whoever sees the directory sees all of it.
        new = _beside(folder, ".new")
        shutil.copytree(root / "out", new, dirs_exist_ok=True)
        new.rename(folder)


def _compile(what: Build, root: Path, log: Path) -> None:
    """Run the script in the root. Its standard output is the progress; the log has the rest."""
    started = time.monotonic()
    with log.open("w") as errors:
        process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", "nice", "-n", "10"),
                *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
                *("--mount-proc", f"--root={root}", "--wd=/"),
                *("sh", f"{what.name}.sh", "/out", what.version),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        for line in process.stdout:
            say(f"{time.monotonic() - started:4.0f} s  {line.rstrip()}")
    if process.wait() != 0:
        end = log.read_text(errors="replace")[-2000:]
        raise engines.NoEngine(f"{what.name}.sh failed; its log {log} ends:\n{end}")


def say(line: str) -> None:
    print(f"kubernetes: {line}", flush=True)
