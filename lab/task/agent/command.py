"""The command line and the environment variables of a training program."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

import lab
from lab.base import variables as var
from lab.protocol.frameworks import FRAMEWORKS, JAX, TENSORFLOW, Rank
from lab.protocol.network.interface import address_of, check_hostname, interface_of
from lab.protocol.volume import Request, Volume
from lab.protocol.volume.run_spec import CLUSTER_ARGS, LISTINGS, fill_in, module_files
from lab.task.agent.agent_config import AgentConfig
from lab.task.flag_completion import RANK_PLACEHOLDERS
from lab.task.lazy_keras import defer_keras

_CPU_MAX: Final = Path("/sys/fs/cgroup/cpu.max")


def program_path(config: AgentConfig, request: Request) -> Path:
    """The path of the task's program: in the run if it is the user's own, else in the scripts."""
    folder, program = program_folder(config, request), _entry(config, request)
    if not request.spec.module:
        return folder / program
    files = [folder / file for file in module_files(program)]
    return next((file for file in files if file.is_file()), files[-1])


def program_folder(config: AgentConfig, request: Request) -> Path:
    """The directory to which the user's paths of programs are relative."""
    return Volume(config.runs).program(request.run_id) if request.spec.own else config.scripts


def _entry(config: AgentConfig, request: Request) -> str:
    """Return the program of a task; callers skip tasks without a program."""
    return request.spec.program_of(config.task) or request.spec.program


def argv(config: AgentConfig, request: Request) -> list[str]:
    """The command line: for a program of lab with the cluster, then the user's arguments."""
    # A printed program has no such flag: it gets the directory in the variable LAB_DATA_DIR.
    spec, program = request.spec, _entry(config, request)
    has_data = spec.data_dir and not spec.listing
    data = [f"--data_dir={config.data / spec.data_dir}"] if has_data else []
    launcher = FRAMEWORKS[spec.framework].launcher
    return [
        sys.executable,
        *(["-m", launcher] if has_launcher(config, request) else []),
        *_runner(request),
        *(["-m", program] if spec.module else [str(program_path(config, request))]),
        *([] if spec.own else _filled_in(config, request, CLUSTER_ARGS)),
        *data,
        *(_filled_in(config, request, spec.args) if spec.own else spec.args),
    ]


def has_launcher(config: AgentConfig, request: Request) -> bool:
    """Whether a launcher starts the program once for each GPU, because the task has several."""
    is_rank = config.task in request.ranks()
    return bool(FRAMEWORKS[request.spec.framework].launcher) and is_rank and config.gpu_count > 1


def _runner(request: Request) -> list[str]:
    """The arguments before a user's own program: the module that starts it."""
    spec = request.spec
    if not spec.own:
        return []
    # Ranks read their place from variables; a program that only one task runs knows its place.
    quiet = ["--quiet"] if spec.programs or spec.has_ranks else []
    if not spec.listing:
        return ["-m", "lab.task.own", *quiet]
    mode = [f"--{spec.listing}"] if spec.listing in LISTINGS else []
    return ["-m", "lab.task.tf1", *quiet, *mode]


def _filled_in(config: AgentConfig, request: Request, templates: Iterable[str]) -> Iterator[str]:
    own = {"job": config.job, "index": str(config.index), **_rank_values(config, request)}
    for template in templates:
        yield from fill_in(template, own, request.cluster)


def _rank_values(config: AgentConfig, request: Request) -> dict[str, str]:
    """The values of the placeholders of a rank; none if the task is none.

    The processes of a launcher fill in their own (`lab.task.own`).
    """
    ranks = request.ranks()
    if config.task not in ranks:
        return {}
    if has_launcher(config, request):
        return {name.strip("{}"): name for name in RANK_PLACEHOLDERS}
    return {"rank": str(ranks.index(config.task)), "local_rank": "0", "size": str(len(ranks))}


def environ(
    config: AgentConfig, request: Request, attempt: int, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The environment variables: the agent's own, and those that identify the task."""
    framework = FRAMEWORKS[request.spec.framework]
    base = _inherited(inherited) | _user_environ(config, request)
    volume = Volume(config.runs)
    start_file = volume.start(request.run_id, config.task)
    data_dir = request.spec.data_dir
    # A module expects to be started in the directory of its packages.
    first = [str(program_folder(config, request))] if request.spec.module else []
    packages = [str(volume.packages(request.run_id))] if request.spec.packages else []
    tf_config = {"cluster": request.cluster, "task": {"type": config.job, "index": config.index}}
    return {
        **(
            _OWN_PROGRAM_DEFAULTS if request.spec.own else _experiment_environ(base, config.runtime)
        ),
        **framework.defaults,
        **({framework.threads_in: _threads(config, request)} if framework.threads_in else {}),
        **base,
        **_no_proxy(request, base),
        **_framework_environ(config, request, attempt),
        **_python_environ(inherited, first, packages),
        **({var.LAB_DATA_DIR: str(config.data / data_dir)} if data_dir else {}),
        **({"TF_CONFIG": json.dumps(tf_config)} if _has_tf_config(request) else {}),
        **({var.LAB_CLUSTER: json.dumps(request.cluster)} if request.spec.is_completed else {}),
        var.LAB_TASK: config.task,
        var.LAB_ATTEMPT: str(attempt),
        var.LAB_RUN_DIR: str(volume.run(request.run_id)),
        # A user's own program has no start file: it begins at once.
        **({var.LAB_START: str(start_file)} if request.spec.waits else {}),
    }


def environ_of_import(inherited: Mapping[str, str], runtime: str) -> dict[str, str]:
    """The variables for the one import of TensorFlow that the programs of all experiments share.

    They are the programs' variables without those that identify the task, and without GPUs.

    Args:
        inherited: The variables that all agents have.
        runtime: The runtime of the programs.
    """
    base = _inherited(inherited)
    return {
        **_experiment_environ(base, runtime),
        **base,
        **_python_environ(inherited),
        "CUDA_VISIBLE_DEVICES": "-1",
    }


def _inherited(inherited: Mapping[str, str]) -> dict[str, str]:
    # The agent's own variables would mislead a program that starts other programs.
    return {name: value for name, value in inherited.items() if name not in _AGENT_ONLY}


def _python_environ(
    inherited: Mapping[str, str], first: Sequence[str] = (), packages: Sequence[str] = ()
) -> dict[str, str]:
    inherited_paths = filter(None, inherited.get("PYTHONPATH", "").split(os.pathsep))
    paths = [*first, str(Path(lab.__file__).parents[1]), *packages, *inherited_paths]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONUNBUFFERED": "1"}


def _experiment_environ(inherited: Mapping[str, str], runtime: str) -> dict[str, str]:
    return _EXPERIMENT_DEFAULTS | defer_keras(inherited, runtime)


def _user_environ(config: AgentConfig, request: Request) -> dict[str, str]:
    """The user's variables; one whose placeholder has no value is left out."""
    env = request.spec.env
    templates = {**env.get(config.job, {}), **env.get("", {})}
    return {
        name: ",".join(texts)
        for name, template in templates.items()
        if (texts := [*_filled_in(config, request, [template])])
    }


def _threads(config: AgentConfig, request: Request) -> str:
    """The number of threads of each process of a task: its share of the task's CPUs."""
    processes = config.gpu_count if has_launcher(config, request) else 1
    return str(max(1, cpus_of_task(len(request.tasks())) // processes))


def cpus_of_task(tasks: int, limit: Path = _CPU_MAX) -> int:
    """Return the number of CPUs of this agent's task, at least 1.

    A task has CPUs of its own if it is pinned to them, as by `lab`, a container engine or Slurm, or
    if its container has a limit, as on Kubernetes. Otherwise all tasks may run on this host.

    Args:
        tasks: The number of all tasks.
        limit: The limit of the container's cgroup: `QUOTA PERIOD`, or `max PERIOD`.
    """
    host = os.cpu_count() or 1
    own = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # no container, or no limit
        quota, period = map(int, limit.read_text("utf-8").split())
        own = min(own, quota // period)
    return max(1, own if own < host else host // tasks)


def _framework_environ(config: AgentConfig, request: Request, attempt: int) -> dict[str, str]:
    """The variables by which a framework's programs find each other; TensorFlow's use flags.

    Raises:
        OSError: No network interface has the task's address, or others do not reach this host.
    """
    framework, ranks = FRAMEWORKS[request.spec.framework], request.ranks()
    if not framework.interface_in:
        return {}
    hosts = [address.rpartition(":")[0] for address in chain(*request.cluster.values())]
    own = config.address.rpartition(":")[0]
    variables = dict.fromkeys(framework.interface_in, interface_of(own, hosts))
    variables |= dict.fromkeys(framework.address_in, own)
    if framework is JAX and not config.gpu_count:
        check_hostname(dict.fromkeys(hosts))
    if framework.of_rank is None or config.task not in ranks:
        return variables
    job, _, index = ranks[0].rpartition("-")
    host, _, port = request.cluster[job][int(index)].rpartition(":")
    address_of(host)  # otherwise the program would look for it until its time limit
    rank = Rank(
        index=ranks.index(config.task),
        size=len(ranks),
        host=host,
        port=int(port),
        gpus=config.gpu_count,
        run=request.run_id,
        attempt=attempt,
        restarts=request.spec.restarts,
    )
    return {**variables, **framework.of_rank(rank)}


def _has_tf_config(request: Request) -> bool:
    """Whether it gets TF_CONFIG, with which Estimator expects a cluster of several tasks."""
    is_other = request.spec.framework != TENSORFLOW.name
    is_single = request.spec.listing and len(request.tasks()) == 1
    return request.spec.tf_config and not is_single and not is_other


def _no_proxy(request: Request, inherited: Mapping[str, str]) -> dict[str, str]:
    """The variable that keeps gRPC from using a configured proxy to reach the other tasks.

    Without a proxy the result is empty, because JAX warns of each such variable.
    """
    if not any(inherited.get(name) for name in _PROXIES):
        return {}
    hosts = {address.rpartition(":")[0] for address in chain(*request.cluster.values())}
    configured = inherited.get("no_grpc_proxy") or inherited.get("no_proxy", "")
    exempt = [*filter(None, configured.split(",")), *sorted(hosts), *_LOOPBACK]
    return {"no_grpc_proxy": ",".join(dict.fromkeys(exempt))}


_EXPERIMENT_DEFAULTS = {"TF_CPP_MIN_LOG_LEVEL": "1"}
# For a program without records the agent needs TensorFlow's own messages. Byte code would be
# collected with the run. Matplotlib draws into files: tasks have no screen.
_OWN_PROGRAM_DEFAULTS = {
    "TF_CPP_MIN_LOG_LEVEL": "0", "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg",
}  # fmt: skip

# Many sources name their servers `localhost:PORT` instead of reading the cluster's addresses.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""The variables in which gRPC looks for a proxy."""

# A notebook sets Matplotlib's backend to one that tasks lack.
_AGENT_ONLY = {var.LAB_CLUSTER, "MPLBACKEND"}
