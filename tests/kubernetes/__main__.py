"""`python -m tests.kubernetes [PYTEST ARGUMENTS]`: build what is missing, then run the tests.

pytest runs as a child in mount, network and process namespaces of its own, which reach the network
of this host, for the packages of the image.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.kubernetes.builds import CONTROL_PLANE, built, cache, say
from tests.kubernetes.site import CGROUP
from tests.support import debian_engine as debian
from tests.support import engine as engines

HERE: Final = Path(__file__).parent
CGROUPS: Final = Path("/sys/fs/cgroup")
TUNABLES: Final = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""Settings of the kernel that a kubelet changes. Here it changes files in their place."""

# The kubelet and its engine write below /var/lib and /var/log; the host's stay as they are.
START = """\
set -e
home=$1
shift
for changed in lib log; do
    upper=$home/var/$changed
    mkdir -p "$upper" "$upper.work"
    mount -t overlay -o "lowerdir=/var/$changed,upperdir=$upper,workdir=$upper.work" \\
        overlay "/var/$changed"
done
mount --bind "$home/resolv.conf" /etc/resolv.conf
cd "$home/sys"
find . -type f | while read -r file; do mount --bind "$file" "/proc/sys/$file"; done
cd "$OLDPWD"
"$@"
"""


def main(arguments: Sequence[str]) -> int:
    """Build and test; pytest's exit code, or 1 with a message."""
    if os.geteuid() != 0:
        say("error: a private Kubernetes needs root")
        return 1
    try:
        programs = built(CONTROL_PLANE)
        engines.install("dockerd", "iptables", "debootstrap", "dnsmasq", "slirp4netns")
        with _alone(), _cgroup(), _home() as home:
            return _test(home, programs, arguments)
    except engines.NoEngine as reason:
        say(f"error: {reason}")
        return 1


def _test(home: Path, programs: Path, arguments: Sequence[str]) -> int:
    pytest = [sys.executable, "-m", "pytest", str(HERE), *arguments]
    command = [
        *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid"),
        *("--fork", "--kill-child", "--mount-proc", "sh", "-c", START, "sh", home, *pytest),
    ]
    variables = {
        **os.environ,
        "LAB_TEST_KUBERNETES": f"{programs}:{home}:{cache() / 'engine'}",
        "PATH": engines.system_path(),
    }
    with (
        subprocess.Popen(command, env=variables, cwd=engines.ROOT) as process,
        debian.way_out(process.pid, home / "network.log"),
    ):
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # pytest has received it, too
                return process.wait()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the cached state of the engine, which only one engine may use."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "engine.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise engines.NoEngine("another `make test-kubernetes` runs; wait for it") from error
        yield


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="lab-kubernetes-", dir="/var/tmp"))
    try:
        (home / "resolv.conf").write_text(debian.RESOLVER)
        for name in TUNABLES:
            (home / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
            (home / "sys" / name).write_bytes(Path("/proc/sys", name).read_bytes())
        yield home
    finally:
        shutil.rmtree(home)


@contextlib.contextmanager
def _cgroup() -> Iterator[None]:
    """The control group of all pods, in each hierarchy."""
    if (CGROUPS / "cgroup.controllers").exists():
        folders = [CGROUPS / CGROUP]
    else:
        folders = [each / CGROUP for each in CGROUPS.iterdir() if each.is_dir()]
    for folder in folders:
        _remove(folder)
        folder.mkdir()
    try:
        yield
    finally:
        for folder in folders:
            _remove(folder)


def _remove(cgroup: Path) -> None:
    """Remove a control group and those in it; none may have a process."""
    for folder, _, _ in os.walk(cgroup, topdown=False):
        Path(folder).rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
