"""Programs of PyTorch and JAX as plain processes: their Python, their variables, their network."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from lab.runtimes import RUNTIMES
from tests.support.cluster import ROOT, Cluster, free_ports, removed_at_end
from tests.support.conditions import lacking, needs_namespaces

HOST = "127.0.0.1"


def python_with(runtime: str) -> str:
    """Return the Python with a framework; skip the test where there is none."""
    wanted = RUNTIMES[runtime]
    python = wanted.python(ROOT)
    if python is None:
        lacking(f"no {wanted.environment} here; `make {wanted.target}` makes it")
    return str(python)


@contextlib.contextmanager
def ranks(
    runtime: str,
    program: str,
    directory: Path,
    *flags: str,
    workers: int = 3,
    ps: int = 0,
    network: tuple[str, ...] = (),
) -> Iterator[Cluster]:
    """Start a program whose workers are ranks, with the variables that they need.

    Args:
        runtime: A key of `RUNTIMES`.
        program: A file in `scripts/`.
        directory: Where the output is; `run/` in it is the run's directory.
        flags: The program's flags.
        workers: The number of workers.
        ps: The number of parameter servers.
        network: The command that runs another one in a private network.
    """
    (port,) = free_ports(1)
    of_rank = {"torch": _of_torch, "jax": _of_jax}[runtime]

    def own_variables(job: str, index: int) -> Mapping[str, str]:
        return of_rank(index, workers, port) if job == "worker" else {"GLOO_SOCKET_IFNAME": "lo"}

    made = Cluster(
        ROOT / "scripts" / program,
        directory,
        *(ps, workers, flags, {"LAB_RUN_DIR": str(directory / "run"), "OMP_NUM_THREADS": "1"}),
        python=(*network, python_with(runtime)),
        own_variables=own_variables,
    )
    with removed_at_end(made):
        made.start_all()
        yield made


def _of_torch(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _of_jax(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": f"{HOST}:{port}",
        "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{HOST}:{port}",
        "OMPI_COMM_WORLD_SIZE": str(ranks),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    }


class PrivateNetwork:
    """A network with a loopback interface alone, which only the processes of one test use."""

    _HOLDER = (
        "from pyroute2 import IPRoute\nIPRoute().link('set', index=1, state='up')\nprint()\ninput()"
    )

    def __init__(self, holder: subprocess.Popen[bytes]) -> None:
        self._pid = holder.pid

    @classmethod
    @contextlib.contextmanager
    def made(cls) -> Iterator[PrivateNetwork]:
        """Make it for the time of the block; skip the test where that is impossible."""
        needs_namespaces()
        command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c"]
        pipe = subprocess.PIPE
        with subprocess.Popen([*command, cls._HOLDER], stdin=pipe, stdout=pipe) as holder:
            assert holder.stdin and holder.stdout
            assert holder.stdout.readline(), "the private network was not made"
            yield cls(holder)
            holder.stdin.close()

    @property
    def command(self) -> tuple[str, ...]:
        """The command that runs another one in this network."""
        return ("nsenter", f"--target={self._pid}", "--user", "--net", "--preserve-credentials")

    @property
    def bytes_sent(self) -> int:
        """The bytes that its processes have sent, with the headers."""
        lines = Path(f"/proc/{self._pid}/net/dev").read_text().splitlines()
        (counters,) = [line.split() for line in lines if line.split()[0] == "lo:"]
        return int(counters[9])
