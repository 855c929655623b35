"""A Docker engine of any Debian release, with GPUs that are only names.

A small Debian is made in a directory. Its dockerd runs there, in mount, network and PID namespaces
of its own, so that it does not meet another engine. GPUs are defined by a CDI (Container Device
Interface) specification whose device nodes are all `/dev/null`, so that a container's `/dev` shows
which GPUs it has.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.golden.boxes import uuid_of
from tests.support import engine as engines

PACKAGES = ("docker.io", "iptables", "ca-certificates", "python3", "procps")
"""`docker top` needs ps, of procps."""

GPUS = tuple(uuid_of(index) for index in range(8))
"""The UUIDs of the GPUs; GPU 0 is `/dev/nvidia0`."""

KIND = "nvidia.com/gpu"
START_S = 60.0
STORES = {"overlay2": False, "containerd": True}
RESOLVER = "nameserver 10.0.2.3\n"
"""The name server that slirp4netns answers as."""

DOCKERFILE = """\
FROM debian-with-python
RUN ln -s python3 /usr/bin/python && mkdir /runs && chown 1000:1000 /runs
COPY lab /app/lab
ENV PYTHONPATH=/app
"""

# The mounts end with the mount namespace, and the network with its own.
START = """\
set -e
root=$1 home=$2
shift 2
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs run "$root/run"
for visible in "$home" "$@"; do
    mkdir -p "$root$visible"
    mount --bind "$visible" "$root$visible"
done
# Not chroot alone: what the engine starts would come out again at the machine's own root.
mkdir -p "$root/before"
cd "$root"
pivot_root . before
umount --lazy /before
exec chroot . dockerd --config-file "$home/daemon.json" --data-root "$home/data" \\
    --host "unix://$home/docker.sock" --pidfile "$home/pid"
"""


@dataclass(frozen=True)
class DebianEngine:
    """An engine that answers.

    Attributes:
        environment: The variables by which `docker` and docker-py find it.
        home: Its directory, for files that it and its client share.
        version: The engine's version.
        network: Its network namespace, where the host has its addresses on the engine's networks.
    """

    environment: Mapping[str, str]
    home: Path
    version: str
    network: Path


@contextlib.contextmanager
def a_root(suite: str, packages: Sequence[str] = PACKAGES) -> Iterator[Path]:
    """A directory with a small Debian for as long as the block lasts, or `NoEngine`."""
    if os.geteuid() != 0:
        raise engines.NoEngine("an engine of another Debian release needs root")
    home = Path(tempfile.mkdtemp(prefix="lab-debian-", dir="/var/tmp"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, home)
        engines.install("debootstrap")
        root = home / "root"
        engines.run(
            ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, root]
        )
        yield root


@contextlib.contextmanager
def a_debian_engine(
    root: Path,
    visible: Sequence[Path],
    environment: Mapping[str, str],
    *,
    store: str = "overlay2",
    cdi: bool = True,
    online: bool = False,
) -> Iterator[DebianEngine]:
    """Start the engine of a root, which sees the visible directories, or `NoEngine`."""
    home = Path(tempfile.mkdtemp(prefix="lab-debian-engine-", dir="/var/tmp"))
    with contextlib.ExitStack() as stack:
        stack.callback(engines.wipe, home)
        (home / "daemon.json").write_text(json.dumps(_configuration(home, store, cdi=cdi)))
        (home / "cdi").mkdir()
        (home / "cdi/nvidia.json").write_text(json.dumps(specification()))
        hooks = engines.write_hook(home)
        found = {**environment, "DOCKER_HOST": f"unix://{home}/docker.sock"}
        log = stack.enter_context((home / "log").open("wb"))
        daemon = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid"),
                *("--fork", "--kill-child=TERM", "--propagation", "private"),
                *("sh", "-c", START, "sh", root, home, *visible),
            ],
            env={**os.environ, "PATH": f"{hooks}:{engines.system_path()}"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        stack.callback(_stop, daemon)
        if online:
            (root / "etc/resolv.conf").write_text(RESOLVER)
            stack.enter_context(way_out(daemon.pid, home / "network.log"))
        engines.wait_for_answer(daemon, found, home / "log", START_S)
        version = engines.run(
            ["docker", "version", "--format", "{{.Server.Version}}"], environment=found
        )
        yield DebianEngine(found, home, version.strip(), Path(f"/proc/{daemon.pid}/ns/net"))


def _stop(daemon: subprocess.Popen[bytes]) -> None:
    """Stop the engine in the process group of `unshare`, which itself ignores the signal."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(daemon.pid, signal.SIGTERM)
    engines.stop(daemon)


def _configuration(home: Path, store: str, *, cdi: bool) -> dict[str, object]:
    features: dict[str, bool] = {"cdi": True} if cdi else {}
    if STORES[store]:
        features["containerd-snapshotter"] = True
    configuration: dict[str, object] = {"features": features} if features else {}
    if cdi:
        configuration["cdi-spec-dirs"] = [f"{home}/cdi"]
    return configuration


def specification() -> dict[str, object]:
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
            for minor, gpu in enumerate(GPUS)
        ],
        "containerEdits": {},
    }


@contextlib.contextmanager
def way_out(process: int, log: Path) -> Iterator[None]:
    """Connect a process's own network namespace to this machine's network, without root's rules."""
    engines.install("slirp4netns")
    own, theirs = Path("/proc/self/ns/net"), Path(f"/proc/{process}/ns/net")
    until = time.monotonic() + START_S
    while theirs.readlink() == own.readlink():
        if time.monotonic() > until:
            raise engines.NoEngine("the engine has no network namespace")
        time.sleep(0.05)
    command = ["slirp4netns", "--configure", "--mtu=65520", "--netns-type=path", theirs, "tap0"]
    with log.open("wb") as output:
        network = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            engines.stop(network)


def make_bare_image(root: Path, engine: DebianEngine) -> str:
    """Make an image out of the engine's own Debian, with lab but without TensorFlow; its name."""
    parts = [path.name for path in root.iterdir() if path.name in {"usr", "etc", "var"}]
    links = [path.name for path in root.iterdir() if path.is_symlink()]
    with subprocess.Popen(
        [
            *("tar", "--create", "--directory", root, "--exclude=usr/sbin/dockerd"),
            *("--exclude=usr/bin/containerd*", "--exclude=var/cache", "--exclude=var/tmp"),
            *parts,
            *links,
        ],
        stdout=subprocess.PIPE,
    ) as tar:
        subprocess.run(
            ["docker", "import", "-", "debian-with-python"],
            env=engine.environment,
            stdin=tar.stdout,
            stdout=subprocess.DEVNULL,
            check=True,
        )
    context = engine.home / "context"
    shutil.copytree(
        engines.ROOT / "lab", context / "lab", ignore=shutil.ignore_patterns("__pycache__")
    )
    (context / "Dockerfile").write_text(DOCKERFILE)
    engines.run(
        ["docker", "build", "--quiet", "--network", "none", "--tag", "lab:bare", context],
        environment={**engine.environment, "DOCKER_BUILDKIT": "0"},
    )
    return "lab:bare"
