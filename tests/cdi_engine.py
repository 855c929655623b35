"""An engine that knows CDI (Container Device Interface), with GPUs that are only names.

Debian 13 has such an engine, so a small Debian 13 is made in a directory: its dockerd runs there,
in a mount and network namespace of its own, and its Python makes the image for the containers. The
GPUs are defined by a CDI specification whose device nodes are all `/dev/null`, so that what a
container is given can be seen in its `/dev`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import engine as engines

SUITE = "trixie"
PACKAGES = ("docker.io", "iptables", "ca-certificates", "python3")
KIND = "nvidia.com/gpu"
START_S = 60.0

DOCKERFILE = """\
FROM debian-with-python
RUN ln -s python3 /usr/bin/python && mkdir /runs && chown 1000:1000 /runs
COPY lab /app/lab
ENV PYTHONPATH=/app
"""

# The mounts end with the mount namespace, and the network with its own.
START = """\
set -e
root=$1 project=$2
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs run "$root/run"
mkdir -p "$root/socket" "$root$project"
mount --bind "$root/../socket" "$root/socket"
mount --bind "$project" "$root$project"
# Not chroot alone: what the engine starts would come out again at the machine's own root.
mkdir -p "$root/before"
cd "$root"
pivot_root . before
umount --lazy /before
exec chroot . dockerd --host unix:///socket/docker.sock --pidfile /socket/pid
"""


@dataclass(frozen=True)
class CdiEngine:
    """An engine that answers, and an image of lab without TensorFlow.

    Attributes:
        environment: The variables by which `docker` and docker-py find it.
        image: The image's name.
        version: The engine's version.
    """

    environment: Mapping[str, str]
    image: str
    version: str


@contextlib.contextmanager
def a_cdi_engine(
    gpus: Sequence[str], project: Path, environment: Mapping[str, str]
) -> Iterator[CdiEngine]:
    """Make one for as long as the block lasts.

    Args:
        gpus: The UUIDs of the GPUs; the first one is `/dev/nvidia0`.
        project: A directory that the engine sees under its own path.
        environment: Variables with which `docker compose` works.

    Raises:
        engines.NoEngine: It could not be started.
    """
    if os.geteuid() != 0:
        raise engines.NoEngine("an engine with CDI needs root")
    home = Path(tempfile.mkdtemp(prefix="lab-cdi-", dir="/var/tmp"))
    root = home / "root"
    (home / "socket").mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, home)
        engines.install("debootstrap")
        engines.run(
            ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, root]
        )
        (root / "etc/docker").mkdir(exist_ok=True)
        (root / "etc/docker/daemon.json").write_text(json.dumps({"features": {"cdi": True}}))
        (root / "etc/cdi").mkdir()
        (root / "etc/cdi/nvidia.json").write_text(json.dumps(specification(gpus)))
        found = {**environment, "DOCKER_HOST": f"unix://{home}/socket/docker.sock"}
        log = stack.enter_context((home / "log").open("wb"))
        daemon = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid"),
                *("--fork", "--kill-child=TERM", "--propagation", "private"),
                *("sh", "-c", START, "sh", str(root), str(project)),
            ],
            env={**os.environ, "PATH": engines.system_path()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        stack.callback(engines.stop, daemon)
        until = time.monotonic() + START_S
        while not engines.answers(found):
            if daemon.poll() is not None or time.monotonic() > until:
                tail = (home / "log").read_text(errors="replace")[-2000:]
                raise engines.NoEngine(f"the engine with CDI did not start:\n{tail}")
            time.sleep(0.2)
        version = engines.run(
            ["docker", "version", "--format", "{{.Server.Version}}"], environment=found
        )
        yield CdiEngine(found, _image(root, home, found), version.strip())


def specification(gpus: Sequence[str]) -> dict[str, object]:
    """A CDI specification in which every GPU is `/dev/null` under the name of its own node."""
    return {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": [
            {
                "name": gpu,
                "containerEdits": {
                    "deviceNodes": [{"path": f"/dev/nvidia{minor}", "hostPath": "/dev/null"}]
                },
            }
            for minor, gpu in enumerate(gpus)
        ],
        "containerEdits": {},
    }


def _image(root: Path, home: Path, environment: Mapping[str, str]) -> str:
    """An image out of the same Debian, with lab in it."""
    parts = [path.name for path in root.iterdir() if path.name in {"usr", "etc", "var"}]
    links = [path.name for path in root.iterdir() if path.is_symlink()]
    with subprocess.Popen(
        [
            *("tar", "--create", "--directory", root, "--exclude=usr/sbin/dockerd"),
            *("--exclude=usr/bin/containerd*", "--exclude=var/lib/docker", "--exclude=var/cache"),
            *parts,
            *links,
        ],
        stdout=subprocess.PIPE,
    ) as tar:
        subprocess.run(
            ["docker", "import", "-", "debian-with-python"],
            env=environment,
            stdin=tar.stdout,
            stdout=subprocess.DEVNULL,
            check=True,
        )
    context = home / "context"
    shutil.copytree(
        engines.ROOT / "lab", context / "lab", ignore=shutil.ignore_patterns("__pycache__")
    )
    (context / "Dockerfile").write_text(DOCKERFILE)
    engines.run(
        ["docker", "build", "--quiet", "--network", "none", "--tag", "lab:bare", context],
        environment={**environment, "DOCKER_BUILDKIT": "0"},
    )
    return "lab:bare"
