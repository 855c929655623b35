"""The command line and the variables of a program."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.protocol.volume import Request, RunSpec
from lab.task.agent import command
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.command import argv, environ
from lab.task.lazy_keras import defer_keras, restore_keras
from tests.support.commands import python
from tests.support.specs import changed

PLACE = AgentConfig(
    project="p",
    node="tf1",
    task="worker-0",
    cluster={"worker": ["tf1:1"]},
    runs=Path("/runs"),
    scripts=Path("/scripts"),
    data=Path("/data"),
)
ALONE = Request("r1", RunSpec("old", "old.py", ("--steps", "5"), own=True), {"worker": ["tf1:1"]})
TWO = {"worker": ["tf1:1", "tf2:1"]}


@pytest.mark.parametrize(
    ("facts", "has_a_cluster"),
    [
        ({"listing": True}, False),
        ({"listing": True, "cluster": TWO}, True),
        ({}, True),
        ({"tf_config": False}, False),
    ],
)
def test_a_printed_program_alone_is_in_no_cluster(
    facts: dict[str, Any], has_a_cluster: bool
) -> None:
    assert ("TF_CONFIG" in environ(PLACE, changed(ALONE, **facts), 0, {})) == has_a_cluster


@pytest.mark.parametrize("own", [True, False])
def test_a_program_of_the_lab_waits_for_the_start_signal(own: bool) -> None:
    """A copy of one of the lab's programs is the user's own, and begins at once."""
    assert ("LAB_START" in environ(PLACE, changed(ALONE, own=own), 0, {})) is not own


OF_THE_LAB = "/scripts/old.py --job_name=worker --task_index=0 --worker_hosts=tf1:1"


@pytest.mark.parametrize(
    ("facts", "arguments"),
    [
        ({}, "-m lab.task.own /runs/r1/program/old.py"),
        ({"own": False}, OF_THE_LAB),
        ({"listing": True}, "-m lab.task.tf1 /runs/r1/program/old.py"),
        ({"listing": "faithful"}, "-m lab.task.tf1 --faithful /runs/r1/program/old.py"),
        ({"listing": "mend"}, "-m lab.task.tf1 --mend /runs/r1/program/old.py"),
    ],
)
def test_the_runner_of_a_program(facts: dict[str, Any], arguments: str) -> None:
    request = changed(ALONE, **facts)
    assert argv(PLACE, request) == [sys.executable, *arguments.split(), "--steps", "5"]
    # A printed program has no flag for its data: a variable has the directory for `input_data`.
    request = changed(request, data_dir="mine")
    assert ("--data_dir=/data/mine" in argv(PLACE, request)) is ("listing" not in facts)
    assert environ(PLACE, request, 0, {})["LAB_DATA_DIR"] == "/data/mine"


def test_placeholders_are_filled_in_for_the_task() -> None:
    args = ("{index}", "--workers={worker_hosts}", '{"job": 1}', "--chiefs={chief_hosts}")
    request = changed(ALONE, cluster=TWO, args=args)
    assert argv(PLACE, request)[-3:] == ["0", "--workers=tf1:1,tf2:1", '{"job": 1}']
    # The arguments of an experiment are its own, behind those of the cluster.
    of_cluster = ["--job_name=worker", "--task_index=0", "--worker_hosts=tf1:1,tf2:1"]
    assert argv(PLACE, changed(request, own=False))[-7:] == [*of_cluster, *args]


RANKS = Request("r1", RunSpec("old", "old.py", own=True, framework="torch"), TWO)
OF_A_RANK = ("{rank}", "{local_rank}/{size}", "{address:worker-1}", "{host:worker-1}")


@pytest.mark.parametrize(
    ("facts", "gpus", "arguments"),
    [
        ({"framework": "torch"}, "none", ["0", "0/2", "tf2:1", "tf2"]),
        ({"framework": "jax"}, "0,1", ["0", "0/2", "tf2:1", "tf2"]),
        ({"framework": "tensorflow", "horovod": True}, "none", ["0", "0/2", "tf2:1", "tf2"]),
        # Each of its processes fills them in.
        ({"framework": "torch"}, "0,1", ["{rank}", "{local_rank}/{size}", "tf2:1", "tf2"]),
        # A task without a rank.
        ({"framework": "torch", "services": ("worker",)}, "none", ["tf2:1", "tf2"]),
    ],
)
def test_placeholders_of_a_rank(
    facts: dict[str, Any], gpus: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "interface_of", lambda *_: "lo")
    monkeypatch.setattr(command, "check_hostname", lambda _: None)
    monkeypatch.setattr(command, "address_of", lambda host: host)
    env = {"worker": {"A": "{rank}", "B": "config"}, "": {"B": "{index} of {worker_hosts...}"}}
    request = changed(RANKS, args=OF_A_RANK, env=env, **facts)
    place = replace(PLACE, gpus=gpus)
    assert argv(place, request)[-len(arguments) :] == arguments
    # The variables of the command line win over those of the config.
    found = environ(place, request, 0, {"A": "inherited", "B": "inherited"})
    rank = arguments[0] if len(arguments) == len(OF_A_RANK) else "inherited"
    assert (found["A"], found["B"]) == (rank, "0 of tf1:1,0 of tf2:1")


def test_the_users_variables_replace_defaults_only() -> None:
    env = {"": {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": "/evil", "LAB_TASK": "ps-0"}}
    found = environ(PLACE, changed(ALONE, env=env), 0, {})
    assert found["TF_CPP_MIN_LOG_LEVEL"] == "3"
    assert found["LAB_TASK"] == "worker-0"
    assert "/evil" not in found["PYTHONPATH"]


@pytest.mark.parametrize(
    ("facts", "completed", "quiet"),
    [
        ({}, True, False),
        ({"args": ("--task={index}",)}, False, False),
        ({"listing": True}, True, False),
        ({"programs": {"worker-0": "a.py"}}, True, True),
        ({"horovod": True}, True, True),
        ({"own": False}, False, False),
    ],
)
def test_what_completes_the_flags_of_a_program(
    facts: dict[str, Any], completed: bool, quiet: bool
) -> None:
    request = changed(ALONE, **facts)
    assert ("--quiet" in argv(PLACE, request)) is quiet
    # The agent's own variable is not for the program.
    variables = environ(PLACE, request, 0, {"LAB_CLUSTER": "{}", "CLUSTER": "x"})
    expected = json.dumps(request.cluster) if completed else None
    assert (variables.get("LAB_CLUSTER"), variables["CLUSTER"]) == (expected, "x")


# ---- The import of Keras is deferred; the end-to-end tests show that it works.


@pytest.mark.parametrize(
    ("chosen", "deferred"),
    [({}, True), ({"TF_USE_LEGACY_KERAS": "1"}, False), ({"TF_USE_LEGACY_KERAS": "0"}, False)],
)
def test_deferred_modules_are_restored_and_the_users_choice_stays(
    chosen: dict[str, str], deferred: bool
) -> None:
    variables = {"A": "1", **chosen}
    found = variables | defer_keras(variables)
    assert (found != variables) is deferred
    assert found["TF_USE_LEGACY_KERAS"] == chosen.get("TF_USE_LEGACY_KERAS", "1")
    for _ in range(2):
        restore_keras(found)
        assert found == variables


@pytest.mark.parametrize(
    ("tensorflow", "own", "variables", "keras"),
    [
        ("tensorflow", False, {}, {"TF_USE_LEGACY_KERAS": "1", "LAB_LAZY_KERAS": "1"}),
        ("tensorflow-2.15", False, {}, {}),  # with Horovod
        ("tensorflow", True, {}, {}),
        ("tensorflow", False, {"TF_USE_LEGACY_KERAS": "0"}, {"TF_USE_LEGACY_KERAS": "0"}),
    ],
)
def test_only_programs_of_the_lab_get_deferred_keras(
    tensorflow: str, own: bool, variables: dict[str, str], keras: dict[str, str]
) -> None:
    place = replace(PLACE, runtime=tensorflow)
    found = environ(place, changed(ALONE, own=own), 0, variables)
    assert {name: value for name, value in found.items() if "KERAS" in name} == keras


@pytest.mark.parametrize(("modules", "frozen"), [("tensorflow", True), ("nothing", False)])
def test_tensorflow_objects_are_not_garbage_collected(modules: str, frozen: bool) -> None:
    code = (
        "import gc, sys\n"
        f"sys.modules[{modules!r}] = sys\n"
        "import lab.task.sdk.program\n"
        "print(gc.get_freeze_count() > 0)\n"
    )
    done = python("-c", code, cwd=Path(__file__).parents[3], check=True)
    assert done.stdout == f"{frozen}\n"
