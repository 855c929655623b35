"""The command line and the environment variables that a training program is started with."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import lab
from lab.task.agent.agent_config import AgentConfig
from lab.task.protocol import CLUSTER_FLAGS, DATA_DIR, Request, TaskProgram, Volume
from lab.task.protocol.lazy_keras import defer_keras


def program_path(place: AgentConfig, request: Request) -> Path:
    """Where the task's program lies: with the run if it is the user's own, else in the scripts."""
    program = _entry(place, request).program
    if request.spec.own:
        return Volume(place.runs).program(request.run_id) / program
    return place.scripts / program


def _entry(place: AgentConfig, request: Request) -> TaskProgram:
    """What the task starts; an execution starts no command for a task that has no program."""
    return request.spec.program_of(place.task) or TaskProgram(
        request.spec.program, request.spec.cluster_flags
    )


def argv(place: AgentConfig, request: Request) -> list[str]:
    """The command line: the cluster's flags that the program knows, then its own."""
    # A printed program reads the data as if it had just come: it is told by DATA_DIR.
    given = request.spec.data_dir and not request.spec.listing
    data = [f"--data_dir={place.data / request.spec.data_dir}"] if given else []
    return [
        sys.executable,
        *_runner(request),
        str(program_path(place, request)),
        *_cluster_flags(place, request),
        *data,
        *request.spec.args,
    ]


def _runner(request: Request) -> list[str]:
    """What stands before a printed program: the module that gives it TensorFlow 1."""
    if not request.spec.listing:
        return []
    switches = {"--faithful": request.spec.faithful, "--mend": request.spec.mend}
    return ["-m", "lab.task.tf1", *(name for name, given in switches.items() if given)]


def _cluster_flags(place: AgentConfig, request: Request) -> list[str]:
    """Who is who, in the words that the program has for it; a job without tasks has no flag."""
    values = {
        "job_name": place.job,
        "task_index": str(place.index),
        "ps_hosts": ",".join(request.cluster.get("ps", ())),
        "worker_hosts": ",".join(request.cluster.get("worker", ())),
    }
    known = {alias: flag for flag, aliases in CLUSTER_FLAGS.items() for alias in aliases}
    named = [(name, values[known.get(name, name)]) for name in _entry(place, request).cluster_flags]
    return [f"--{name}={value}" for name, value in named if value]


def environ(
    place: AgentConfig, request: Request, attempt: int, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The environment variables: the agent's own, and what tells the program who it is."""
    kept = _kept(inherited)
    argument = Volume(place.runs).start(request.run_id, place.task)
    config = {"cluster": request.cluster, "task": {"type": place.job, "index": place.index}}
    return {
        **(_OF_OWN_PROGRAMS if request.spec.own else _of_experiments(kept, place.tensorflow)),
        **kept,
        **_no_proxy(request, kept),
        **_for_python(inherited),
        **({DATA_DIR: str(place.data / request.spec.data_dir)} if request.spec.data_dir else {}),
        **({} if _is_alone(request) else {"TF_CONFIG": json.dumps(config)}),
        "LAB_TASK": place.task,
        "LAB_RUN_ID": request.run_id,
        "LAB_ATTEMPT": str(attempt),
        "LAB_RUN_DIR": str(Volume(place.runs).run(request.run_id)),
        # Nobody gives a program of the user's own the word: it begins at once, as by hand.
        **({"LAB_START": str(argument)} if request.spec.waits else {}),
    }


def environ_of_import(inherited: Mapping[str, str], tensorflow: str) -> dict[str, str]:
    """The variables in which TensorFlow is imported for all experiments' programs.

    They are the programs' own but for what tells each who it is, and for the cards: there are none.

    Args:
        inherited: Those that all agents have.
        tensorflow: The version.
    """
    kept = _kept(inherited)
    no_gpus = {"CUDA_VISIBLE_DEVICES": "-1"}
    return {**_of_experiments(kept, tensorflow), **kept, **_for_python(inherited), **no_gpus}


def _kept(inherited: Mapping[str, str]) -> dict[str, str]:
    # What belongs to the agent alone would only mislead a program that starts others.
    return {name: value for name, value in inherited.items() if name not in _AGENTS_OWN}


def _for_python(inherited: Mapping[str, str]) -> dict[str, str]:
    package_root = str(Path(lab.__file__).parents[1])
    paths = [package_root, *filter(None, inherited.get("PYTHONPATH", "").split(os.pathsep))]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONUNBUFFERED": "1"}


def _of_experiments(inherited: Mapping[str, str], tensorflow: str) -> dict[str, str]:
    return _OF_EXPERIMENTS | defer_keras(inherited, tensorflow)


def _is_alone(request: Request) -> bool:
    """Whether it is a printed program without a cluster; Estimator would take one for a cluster."""
    return request.spec.listing and len(request.tasks()) == 1


def _no_proxy(request: Request, inherited: Mapping[str, str]) -> dict[str, str]:
    """Keep gRPC from asking a proxy for the other tasks, as it does where one is configured."""
    hosts = {address.rpartition(":")[0] for each in request.cluster.values() for address in each}
    given = inherited.get("no_grpc_proxy") or inherited.get("no_proxy", "")
    return {"no_grpc_proxy": ",".join([*filter(None, given.split(",")), *sorted(hosts)])}


_OF_EXPERIMENTS = {"TF_CPP_MIN_LOG_LEVEL": "1"}
# A program that says nothing itself is known by what TensorFlow says of its start. Byte code would
# only come home with the run.
_OF_OWN_PROGRAMS = {"TF_CPP_MIN_LOG_LEVEL": "0", "PYTHONDONTWRITEBYTECODE": "1"}

_AGENTS_OWN = {"LAB_EXPERIMENT", "LAB_FLAGS", "LAB_LEASH", "LAB_NURSERY", "LAB_STAMPS"}
