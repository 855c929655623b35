"""When the import of Keras is deferred; the end-to-end tests show that it works."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.command import environ
from lab.task.protocol import Request, RunSpec
from lab.task.protocol.lazy_keras import defer_keras, restore_keras
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


def test_deferred_modules_are_restored() -> None:
    variables = {"A": "1"}
    variables |= defer_keras(variables)
    assert variables["TF_USE_LEGACY_KERAS"] == "1"
    restore_keras(variables)
    assert variables == {"A": "1"}
    restore_keras(variables)
    assert variables == {"A": "1"}


def test_the_users_choice_stays() -> None:
    for choice in ("1", "0"):
        variables = {"TF_USE_LEGACY_KERAS": choice}
        assert defer_keras(variables) == {}
        restore_keras(variables)
        assert variables == {"TF_USE_LEGACY_KERAS": choice}


def test_own_programs_get_unchanged_keras() -> None:
    assert "TF_USE_LEGACY_KERAS" in environ(PLACE, REQUEST, 0, {})
    own = environ(PLACE, changed(REQUEST, own=True), 0, {})
    assert not [name for name in own if "KERAS" in name]
    chosen = environ(PLACE, REQUEST, 0, {"TF_USE_LEGACY_KERAS": "0"})
    assert (chosen["TF_USE_LEGACY_KERAS"], "LAB_LAZY_KERAS" in chosen) == ("0", False)


def test_nothing_is_deferred_with_horovod() -> None:
    assert "TF_USE_LEGACY_KERAS" in environ(replace(PLACE, tensorflow="2.21"), REQUEST, 0, {})
    assert "TF_USE_LEGACY_KERAS" not in environ(replace(PLACE, tensorflow="2.15"), REQUEST, 0, {})


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
