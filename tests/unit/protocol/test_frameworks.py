"""The frameworks: how a program's framework is found, and the variables of its tasks."""

from __future__ import annotations

import platform
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.python import missing_python, versions
from lab.base.errors import InputError
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.frameworks import FRAMEWORKS, framework_of
from lab.protocol.network import interface
from lab.protocol.runtimes import RUNTIMES
from lab.protocol.volume import Request, RunSpec
from lab.protocol.volume.run_spec import own_policy
from lab.task.agent import command
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.command import cpus_of_task
from lab.task.agent.ring import Ring
from tests.support.cli import Host
from tests.support.programs import prepared

ROOT = Path(__file__).parents[3]
CLUSTER = {"worker": ["tf1:2222", "tf2:2223"], "ps": ["tf3:2224"]}
TORCH = RunSpec("own", "own.py", own=True, framework="torch")


def place(task: str = "worker-1", gpus: str = "none") -> AgentConfig:
    job, _, index = task.partition("-")
    return AgentConfig(
        project="p",
        node=CLUSTER[job][int(index)].partition(":")[0],
        task=task,
        cluster=CLUSTER,
        runs=Path("/runs"),
        scripts=Path("/scripts"),
        data=Path("/data"),
        gpus=gpus,
    )


@pytest.fixture(autouse=True)
def eth0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "interface_of", lambda host, _hosts: f"eth0 of {host}")
    monkeypatch.setattr(command, "check_hostname", lambda _hosts: None)
    monkeypatch.setattr(command, "address_of", lambda host: host)
    monkeypatch.setattr(command, "cpus_of_task", lambda _tasks: 6)


def variables(
    spec: RunSpec, config: AgentConfig, given: Mapping[str, str] | None = None, attempt: int = 0
) -> dict[str, str]:
    """The variables that the agent itself sets, without those of every program."""
    found = command.environ(config, Request("r1", spec, CLUSTER), attempt, given or {})
    kept = ("PET_", "MASTER_", "JAX_", "OMPI_", "TF_C", "GLOO_", "NCCL_", "OMP_", "XLA_", "TORCH")
    kept = (*kept, "RANK", "WORLD", "LOCAL_", "NODE_", "GROUP_", "ROLE_", "COORD", "NUM_", "PROC")
    return {name: value for name, value in found.items() if name.startswith(kept)}


def test_a_task_of_pytorch_is_a_rank() -> None:
    assert variables(replace(TORCH, restarts=3), place(), attempt=2) == {
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "OMP_NUM_THREADS": "6",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_NAME": "default",
        "ROLE_RANK": "1",
        "ROLE_WORLD_SIZE": "2",
        "MASTER_ADDR": "tf1",
        "MASTER_PORT": "2222",
        "TORCHELASTIC_RUN_ID": "r1",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "tf1",
        "PET_MASTER_PORT": "2222",
        "PET_LOCAL_ADDR": "tf2",
        "GLOO_SOCKET_IFNAME": "eth0 of tf2",
        "NCCL_SOCKET_IFNAME": "eth0 of tf2",
    }


def test_a_task_of_jax_is_a_rank() -> None:
    assert variables(replace(TORCH, framework="jax"), place(gpus="GPU-1,GPU-2")) == {
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "JAX_COORDINATOR_ADDRESS": "tf1:2222",
        "JAX_COORDINATOR_PORT": "2222",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
        "COORDINATOR_ADDRESS": "tf1",
        "COORDINATOR_PORT": "2222",
        "NUM_PROCESSES": "2",
        "PROCESS_ID": "1",
        "JAX_LOCAL_DEVICE_IDS": "0,1",
        "OMPI_MCA_orte_hnp_uri": "0.0;tcp://tf1:2222",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "NCCL_SOCKET_IFNAME": "eth0 of tf2",
    }
    assert "JAX_LOCAL_DEVICE_IDS" not in variables(replace(TORCH, framework="jax"), place())


def test_a_service_has_no_rank_and_tensorflow_has_no_such_variables() -> None:
    assert set(variables(TORCH, place("ps-0"))) == {
        *("TF_CPP_MIN_LOG_LEVEL", "OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        *("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "PET_LOCAL_ADDR"),
    }
    assert set(variables(replace(TORCH, framework="tensorflow"), place())) == {
        *("TF_CPP_MIN_LOG_LEVEL", "TF_CONFIG")
    }


def test_the_users_variables_replace_the_defaults_but_not_the_place() -> None:
    found = variables(TORCH, place(), {"OMP_NUM_THREADS": "4", "RANK": "7", "MASTER_ADDR": "x"})
    assert (found["OMP_NUM_THREADS"], found["RANK"], found["MASTER_ADDR"]) == ("4", "1", "tf1")


@pytest.mark.parametrize("title", ["PyTorch", "JAX", "Horovod"])
def test_the_page_has_all_variables_of_a_rank(title: str) -> None:
    page = (ROOT / "docs/reference/rank-variables.md").read_text("utf-8")
    section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \|", section, re.MULTILINE)
    name = next((each.name for each in FRAMEWORKS.values() if each.title == title), "tensorflow")
    spec = replace(TORCH, framework=name, horovod=title == "Horovod", restarts=3)
    own = variables(spec, place()) | Ring(place(), Request("r1", spec, CLUSTER)).environ(0)
    left_out = {"TF_CPP_MIN_LOG_LEVEL", "TF_CONFIG"}
    shown = {"r1": "RUN", "6": "CPUs", "eth0 of tf2": "INTERFACE"}
    assert dict(rows) == {
        variable: "PORT" if variable.endswith("RENDEZVOUS_PORT") else shown.get(value, value)
        for variable, value in own.items()
        if variable not in left_out
    }


@pytest.mark.parametrize(
    ("gpus", "threads"), [("none", "6"), ("GPU-1", "6"), ("GPU-1,GPU-2", "3"), ("all", "6")]
)
def test_the_processes_of_a_task_share_its_cpus(gpus: str, threads: str) -> None:
    assert variables(TORCH, place(gpus=gpus))["OMP_NUM_THREADS"] == threads


@pytest.mark.parametrize(
    ("pinned", "host", "tasks", "limit", "cpus"),
    [
        (4, 64, 2, "max 100000", 4),  # pinned by lab, an engine or Slurm
        (64, 64, 2, "250000 100000", 2),  # a pod with a limit
        (64, 64, 2, "max 100000", 32),  # the host is shared
        (2, 2, 5, None, 1),
    ],
)
def test_the_cpus_of_a_task(
    pinned: int,
    host: int,
    tasks: int,
    limit: str | None,
    cpus: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(pinned))
    monkeypatch.setattr("os.cpu_count", lambda: host)
    file = tmp_path / "cpu.max"
    if limit is not None:
        file.write_text(f"{limit}\n")
    assert cpus_of_task(tasks, file) == cpus


def test_the_variables_that_a_user_cannot_set() -> None:
    names = ("RANK", "PET_NNODES", "GLOO_SOCKET_IFNAME", "JAX_PROCESS_ID", "TF_CONFIG", "LAB_TASK")
    assert [[each.sets(name) for name in names] for each in FRAMEWORKS.values()] == [
        [False, False, False, False, True, True],
        [True, True, True, False, True, True],
        [False, False, False, True, True, True],
    ]
    assert not any(each.sets("OMP_NUM_THREADS") for each in FRAMEWORKS.values())


def test_matplotlib_draws_without_a_screen_and_without_a_notebook() -> None:
    inherited = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    found = command.environ(place(), Request("r1", TORCH, CLUSTER), 0, inherited)
    assert found["MPLBACKEND"] == "Agg"


@pytest.mark.parametrize(
    ("framework", "gpus", "own", "start"),
    [
        ("torch", "GPU-1,GPU-2", False, ["-m", "torch.distributed.run", "/scripts/own.py"]),
        ("torch", "GPU-1,GPU-2", True, ["-m", "torch.distributed.run", "-m", "lab.task.own"]),
        ("torch", "GPU-1", False, ["/scripts/own.py"]),
        ("torch", "none", False, ["/scripts/own.py"]),
        ("jax", "GPU-1,GPU-2", False, ["/scripts/own.py"]),
        ("tensorflow", "GPU-1,GPU-2", False, ["/scripts/own.py"]),
    ],
)
def test_only_a_task_of_pytorch_with_several_gpus_starts_torchrun(
    framework: str, gpus: str, own: bool, start: list[str]
) -> None:
    spec = replace(TORCH, framework=framework, own=own)
    config = place(gpus=gpus)
    assert command.argv(config, Request("r1", spec, CLUSTER))[1 : 1 + len(start)] == start
    if framework == "torch":
        count = str(max(1, config.gpu_count))
        found = variables(spec, config)
        assert found["PET_NPROC_PER_NODE"] == count
        assert found.get("PET_REDIRECTS") == ("1:3" if count == "2" else None)


@pytest.mark.parametrize(
    ("packages", "framework"),
    [
        ({"torch", "numpy"}, "torch"),
        ({"lightning"}, "torch"),
        ({"jax", "tensorflow"}, "jax"),  # it reads its data with TensorFlow
        ({"tensorflow"}, "tensorflow"),
        ({"numpy"}, "tensorflow"),
        (set(), "tensorflow"),
    ],
)
def test_the_imports_show_the_framework(packages: set[str], framework: str) -> None:
    assert framework_of(packages).name == framework


@pytest.mark.parametrize(
    ("framework", "line", "is_lost"),
    [
        ("torch", "RuntimeError: [pair.cc:553] Connection closed by peer [10.77.0.3]:5", True),
        ("torch", "RuntimeError: mat1 and mat2 shapes cannot be multiplied", False),
        ("jax", "ValueError: UNKNOWN: Gloo AllGather failed: Connection reset by peer", True),
        ("jax", "ValueError: incompatible shapes", False),
        ("tensorflow", "RuntimeError: Connection closed by peer", False),
        ("tensorflow", "main.py:3: AbortedError: Cleanup 2096", True),
        ("tensorflow", "UnavailableError: failed to connect to all addresses", True),
        ("tensorflow", "UnavailableError: Error executing an HTTP request: libcurl code 6", False),
    ],
)
def test_the_message_of_a_lost_rank_is_known(framework: str, line: str, is_lost: bool) -> None:
    lost_peer = FRAMEWORKS[framework].lost_peer
    assert bool(lost_peer and lost_peer.search(line)) is is_lost


def test_every_runtime_has_a_framework() -> None:
    assert {each.framework for each in RUNTIMES.values()} == set(FRAMEWORKS)


def test_experiments_have_the_policy_of_own_programs_of_their_framework() -> None:
    ranks = [each for each in EXPERIMENTS.values() if FRAMEWORKS[each.framework].has_ranks]
    assert len(ranks) == 5
    assert all(each.policy == own_policy(each.framework) and each.gang for each in ranks)


@pytest.fixture
def project(host: Host) -> None:
    host.backend.environment = None


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("source", "chosen", "framework", "notice"),
    [
        ("import torch\n", None, "torch", "own.py imports torch: it runs with PyTorch 2.13"),
        ("def f():\n    from jax import numpy\n", None, "jax", "it runs with JAX 0.10"),
        ("def f():\n    import torch\n", "tensorflow", "tensorflow", ""),
        ("x = 1\n", "torch", "torch", ""),
    ],
)
def test_a_program_of_ones_own_gets_its_framework_and_a_gang(
    source: str, chosen: str | None, framework: str, notice: str
) -> None:
    run, notices = prepared(source, framework=chosen)
    spec = run.spec
    assert (run.plan.runtime, spec.framework) == (framework, framework)
    assert spec.gang is FRAMEWORKS[framework].has_ranks
    assert spec.restarts == (3 if spec.gang else 0)
    about = [line for line in notices if "it runs with" in line]
    assert len(about) == bool(notice)
    assert notice in "".join(about)
    # Its tasks know their place by variables: no notice that they start alike.
    assert not any("alike" in line for line in notices if framework != "tensorflow")


@pytest.mark.usefixtures("project")
def test_a_module_of_ones_own_with_the_name_of_a_framework_is_none() -> None:
    Path("torch.py").write_text("x = 1\n")
    run, _ = prepared("import torch\n")
    assert run.plan.runtime == "tensorflow"


@pytest.mark.usefixtures("project")
def test_a_job_without_a_rank_is_refused_with_a_config_that_fits() -> None:
    jobs = "ps: {on: [tf1]}, worker: {on: [tf2]}"
    with pytest.raises(
        InputError, match=r"PyTorch does not give a rank to the job 'ps' of cluster.yaml"
    ):
        prepared("import torch\n", jobs=jobs)


@pytest.mark.usefixtures("project")
def test_a_missing_framework_is_named_with_the_way_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = prepared("import torch\n")
    monkeypatch.setattr("lab.protocol.runtimes.Runtime.python", lambda *_: Path(sys.executable))
    assert missing_python(run.plan, tmp_path) is None
    monkeypatch.setattr("lab.protocol.runtimes.Runtime.python", lambda *_: None)
    what = f"PyTorch 2.13 is not installed for {sys.executable}; create .venv-torch with"
    assert missing_python(run.plan, tmp_path) == f"{what} `make torch`"
    for module in ("lab.backends.python", "lab.base.shipped"):
        monkeypatch.setattr(f"{module}.CLONE", None)
    assert "; install the extra `torch` with `" in str(missing_python(run.plan, tmp_path))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    known = {"localhost": "127.0.0.1", "tf1": "127.0.1.1", "tf2": "198.51.100.2"}

    def resolve(host: str) -> str:
        if host not in known:
            raise socket.gaierror(-2, "Name or service not known")
        return known[host]

    monkeypatch.setattr(socket, "gethostbyname", resolve)
    monkeypatch.setattr(socket, "gethostname", lambda: "tf1")
    return known


def test_the_interface_of_this_host_is_found_by_its_address(names: dict[str, str]) -> None:
    assert interface.interface_of("localhost") == "lo"
    names["tf9"] = "203.0.113.7"
    with pytest.raises(OSError, match=r"no network interface has the address 203.0.113.7 of tf9"):
        interface.interface_of("tf9")


def test_a_host_whose_name_is_a_loopback_address_has_the_interface_to_the_others(
    names: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert interface.interface_of("tf1", ["tf1", "localhost"]) == "lo"
    with pytest.raises(OSError, match=r"the host tf3 has no address here: Name or service not"):
        interface.interface_of("tf1", ["tf3"])
    routed = FakeSocket("198.51.100.1")
    monkeypatch.setattr(socket, "socket", lambda *_: routed)
    with pytest.raises(OSError, match=r"no network interface has the address 198.51.100.1 of tf1"):
        interface.interface_of("tf1", ["tf1", "tf2"])
    assert routed.peer == ("198.51.100.2", 9)


class FakeSocket:
    """A socket whose route to each peer begins at one address."""

    def __init__(self, address: str) -> None:
        self.address, self.peer = address, ("", 0)
        self.real = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def __enter__(self) -> FakeSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.real.close()

    def connect(self, peer: tuple[str, int]) -> None:
        self.peer = peer

    def getsockname(self) -> tuple[str, int]:
        return self.address, 1

    def fileno(self) -> int:
        return self.real.fileno()


def test_jax_needs_a_hostname_that_the_others_reach(names: dict[str, str]) -> None:
    interface.check_hostname(["localhost", "tf1"])  # all tasks are here
    with pytest.raises(OSError, match=r"the host tf1 has the address 127.0.1.1 in its /etc/hosts"):
        interface.check_hostname(["tf1", "tf2"])
    names["tf1"] = "198.51.100.1"
    interface.check_hostname(["tf1", "tf2"])


def test_the_version_of_another_python_is_that_of_its_environment(tmp_path: Path) -> None:
    assert versions(sys.executable)["python"] == platform.python_version()
    python = tmp_path / "bin/python"
    assert "python" not in versions(str(python))
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.9\n")
    assert versions(str(python))["python"] == "3.12.9"
