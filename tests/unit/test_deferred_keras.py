"""When the import of Keras is deferred; the end-to-end tests show that it works."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.command import environ
from lab.task.lazy_keras import defer_keras, restore_keras
from lab.volume import Request, RunSpec
from tests.support.specs import changed

REQUEST = Request("r1", RunSpec("async", "mnist_async.py"), {"worker": ["tf1:1"]})
PLACE = AgentConfig(
    project="p",
    node="tf1",
    task="worker-0",
    cluster={"worker": ["tf1:1"]},
    runs=Path("/runs"),
    scripts=Path("/scripts"),
    data=Path("/data"),
)


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
    found = environ(place, changed(REQUEST, own=own), 0, variables)
    assert {name: value for name, value in found.items() if "KERAS" in name} == keras


@pytest.mark.parametrize(("modules", "frozen"), [("tensorflow", True), ("nothing", False)])
def test_tensorflow_objects_are_not_garbage_collected(modules: str, frozen: bool) -> None:
    code = (
        "import gc, sys\n"
        f"sys.modules[{modules!r}] = sys\n"
        "import lab.task.sdk.program\n"
        "print(gc.get_freeze_count() > 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{frozen}\n"
