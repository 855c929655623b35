"""A real Slurm for the tests: a controller and three nodes on this host, with fake GPUs.

All its state is in one temporary directory, and it ends with the tests. It is made only on
request, because it installs Debian's packages as root.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.agents import processes_with
from tests.support.cluster import free_ports
from tests.support.commands import run_command
from tests.support.engine import ROOT, NoEngine, install, run, stop, system_path

HINT = "LAB_TEST_SLURM=1 installs and starts one (needs root, Debian or Ubuntu)"
COMMANDS = ("munged", "slurmctld", "slurmd", "srun")
NODES = ("n1", "n2", "n3")
CPUS = 4
"""CPUs of a node. Slurm counts them, and the nodes share those of this host."""

GPUS = 2
HOMES = Path("/var/tmp")
"""The directory of the directories of all Slurms of the tests on this host, and of their locks."""

SLOTS = 6
"""The most Slurms of the tests on this host."""

JOBS = 57
"""The job numbers of a Slurm. The ports of a job follow from its number, and repeat after 344."""

START_S = 180.0
STOP_S = 60.0
_POLL_S = 0.1

# `config_overrides`: nodes may have more CPUs than this host. Without cgroups, nodes can share a
# host. Without `bf_interval`, heterogeneous jobs wait for half a minute. Slurm forgets a job after
# `MinJobAge`, and uses its number again.
CONFIG = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge/socket
CredType=cred/munge
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=1,batch_sched_delay=0,sched_interval=2
GresTypes=gpu
ReturnToService=2
KillWait=15
SlurmdTimeout=8
UnkillableStepTimeout=16
FirstJobId={first}
MaxJobId={last}
MinJobAge=30
{nodes}
PartitionName=lab Nodes=ALL Default=YES MaxTime=UNLIMITED State=UP OverSubscribe=NO
"""


class NoSlurm(Exception):  # noqa: N818
    """There is no Slurm for the tests; the message has the reason."""


@dataclass
class Slurm:
    """A Slurm that answers."""

    home: Path
    environment: Mapping[str, str]
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, *command: str) -> str:
        """Run one of its commands, which must succeed; its standard output."""
        own = {"SLURM_CONF": self.environment["SLURM_CONF"]}
        return run(command, environment={**os.environ, **own})

    def states(self) -> dict[str, str]:
        command = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
        done = run_command(command, env=dict(self.environment))
        return dict(line.split() for line in done.stdout.splitlines())

    def start(self, name: str, *command: str) -> None:
        """Start a daemon, which ends with this process."""
        with (self.home / f"{name}.out").open("wb") as output:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def start_node(self, name: str) -> None:
        self.start(name, "slurmd", "-D", "-N", name)

    def kill_node(self, name: str) -> None:
        """End all processes of a node at once, as when it fails; `start_node` brings it back."""
        texts = (f"SLURMD_NODENAME={name}", f"SLURM_CONF={self.home}/slurm.conf")
        task = {text.encode() for text in texts}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_task = task <= {*(process / "environ").read_bytes().split(b"\0")}
                if is_task or self.home / f"slurmd-{name}.log" in _open_files(process):
                    os.kill(int(process.name), signal.SIGKILL)
        self._daemons.pop(name).wait()

    def lab_jobs(self) -> list[str]:
        """The names of lab's jobs in the queue, one for each component."""
        names = self.run("squeue", "--noheader", "--format=%j").splitlines()
        return [name for name in names if name.startswith("lab-")]

    def start_again(self, job: str, patience_s: float) -> None:
        """Start a job that Slurm has put back; without this, it waits for two minutes."""
        queue = ["squeue", "--noheader", f"--job={job}"]

        def waits() -> bool:
            return set(self.run(*queue, "--format=%T").split()) == {"PENDING"}

        wait_until(waits, "the job is not in the queue", patience_s)
        for component in self.run(*queue, "--format=%A").split():
            self.run("scontrol", "update", f"JobId={component}", "StartTime=now")

    def check(self) -> None:
        for name, daemon in self._daemons.items():
            if daemon.poll() is not None:
                printed = (self.home / f"{name}.out").read_text(errors="replace")[-2000:]
                raise NoSlurm(f"{name} ended with {daemon.returncode}:\n{printed}")

    def stop(self) -> None:
        with contextlib.suppress(NoSlurm, NoEngine, subprocess.TimeoutExpired):
            command = ["scancel", "--state=RUNNING"]
            subprocess.run(command, env=dict(self.environment), check=False, timeout=STOP_S)
            states = ("squeue", "--noheader", "--states=RUNNING,COMPLETING")
            wait_until(lambda: not self.run(*states), "jobs did not end", STOP_S)
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            stop(daemon)


def asked_for() -> bool:
    """Whether Slurm may be installed and started."""
    return os.environ.get("CI") == "true" or os.environ.get("LAB_TEST_SLURM") == "1"


@contextlib.contextmanager
def a_slurm() -> Iterator[Slurm]:
    """A private Slurm for as long as the block lasts, or `NoSlurm`."""
    if not asked_for():
        raise NoSlurm(f"no Slurm; {HINT}")
    if os.geteuid() != 0:
        raise NoSlurm("a private Slurm needs root")
    try:
        install(*COMMANDS)
    except NoEngine as error:
        raise NoSlurm(str(error)) from error
    with slot() as number, contextlib.ExitStack() as stack:
        home = HOMES / f"lab-slurm-{number}"
        remove(home)  # what killed tests have left
        home.mkdir(mode=0o755)
        stack.callback(remove, home)
        slurm = Slurm(home, _environment(home))
        stack.callback(slurm.stop)
        _start(slurm, first_job=1 + number * JOBS)
        yield slurm


@contextlib.contextmanager
def slot() -> Iterator[int]:
    """Hold a number that no other Slurm of the tests has for its files and jobs, or `NoSlurm`."""
    for number in range(SLOTS):
        with (HOMES / f"lab-slurm-{number}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield number
            return
    raise NoSlurm(f"{SLOTS} private Slurms run on this host; wait for one to end")


def _open_files(process: Path) -> Iterator[Path]:
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield descriptor.readlink()


def make_project(folder: Path) -> None:
    (folder / "scripts").symlink_to(ROOT / "scripts")
    (folder / "data").mkdir()
    (folder / "cluster.yaml").write_bytes((ROOT / "clusters/slurm.yaml").read_bytes())


def wait_until(condition: Callable[[], bool], what: str, patience_s: float) -> None:
    until = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > until:
            raise NoSlurm(what)
        time.sleep(_POLL_S)


def _environment(home: Path) -> dict[str, str]:
    # A job inside a job would inherit the outer job's settings.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "SBATCH_", "SRUN_"))
    }
    return {**kept, "PATH": system_path(), "SLURM_CONF": str(home / "slurm.conf")}


def _start(slurm: Slurm, first_job: int) -> None:
    home = slurm.home
    for name in ("munge", "state"):
        (home / name).mkdir(mode=0o755)
    _start_munge(slurm)
    devices = _fake_gpus(home)
    (home / "gres.conf").write_text(_gres(devices))
    (home / "slurm.conf").write_text(_config(home, first_job))
    slurm.start("slurmctld", "slurmctld", "-D")
    for name in NODES:
        slurm.start_node(name)

    def ready() -> bool:
        slurm.check()
        return slurm.states() == dict.fromkeys(NODES, "idle")

    wait_until(ready, "the nodes are not ready", START_S)


def _start_munge(slurm: Slurm) -> None:
    munge = slurm.home / "munge"
    key = munge / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    files = {name: munge / name for name in ("key", "log", "pid", "seed", "socket")}
    slurm.start(
        "munged",
        "munged",
        "--foreground",
        f"--key-file={files['key']}",
        f"--log-file={files['log']}",
        f"--pid-file={files['pid']}",
        f"--seed-file={files['seed']}",
        f"--socket={files['socket']}",
    )

    def listens() -> bool:
        slurm.check()
        return files["socket"].exists()

    wait_until(listens, "munged does not listen", START_S)


def _fake_gpus(home: Path) -> dict[str, list[Path]]:
    """Character devices: Slurm refuses other files."""
    devices: dict[str, list[Path]] = {}
    null = os.makedev(1, 3)
    for node in NODES:
        devices[node] = [home / f"gpu-{node}-{number}" for number in range(GPUS)]
        for device in devices[node]:
            os.mknod(device, stat.S_IFCHR | 0o666, null)
    return devices


def _gres(devices: Mapping[str, Sequence[Path]]) -> str:
    return "".join(
        f"NodeName={node} Name=gpu File={device} Flags=nvidia_gpu_env\n"
        for node, files in devices.items()
        for device in files
    )


def _config(home: Path, first_job: int) -> str:
    ports = free_ports(len(NODES) + 1)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024**2
    nodes = [
        f"NodeName={node} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port}"
        f" CPUs={CPUS} RealMemory={memory} Gres=gpu:{GPUS} State=UNKNOWN"
        for node, port in zip(NODES, ports[1:], strict=True)
    ]
    return CONFIG.format(
        host=socket.gethostname(),
        home=home,
        port=ports[0],
        first=first_job,
        last=first_job + JOBS - 1,
        nodes="\n".join(nodes),
    )


def remove(home: Path) -> None:
    """Remove a Slurm's directory, and end what killed daemons have left.

    These are step daemons and programs; all have its configuration.
    """

    def ended() -> bool:
        left = {*processes_with(f"SLURM_CONF={home}/slurm.conf\0")} - {os.getpid()}
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return not left

    wait_until(ended, f"processes of {home} do not end", STOP_S)
    if home.exists():
        shutil.rmtree(home)
