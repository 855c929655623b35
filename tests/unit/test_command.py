"""The command line and the variables of a program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.command import argv, environ
from lab.task.protocol import Request, RunSpec
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
    ("request_", "has_a_cluster"),
    [
        (changed(ALONE, listing=True), False),
        (changed(ALONE, listing=True, cluster=TWO), True),
        (ALONE, True),
        (changed(ALONE, tf_config=False), False),
    ],
)
def test_a_printed_program_alone_is_in_no_cluster(request_: Request, has_a_cluster: bool) -> None:
    assert ("TF_CONFIG" in environ(PLACE, request_, 0, {})) == has_a_cluster


@pytest.mark.parametrize(("own", "waits"), [(True, False), (False, True)])
def test_a_program_waits_for_the_start_signal(own: bool, waits: bool) -> None:
    """A copy of one of the lab's programs is the user's own, and begins at once."""
    assert ("LAB_START" in environ(PLACE, changed(ALONE, own=own), 0, {})) == waits


def test_a_program_of_ones_own_has_a_runner_and_an_experiment_has_none() -> None:
    own = changed(ALONE, cluster_args=())
    started = ["/runs/r1/program/old.py", "--steps", "5"]
    assert argv(PLACE, own) == [sys.executable, "-m", "lab.task.own", *started]
    assert argv(PLACE, changed(own, own=False))[1] == "/scripts/old.py"


@pytest.mark.parametrize(
    ("switches", "arguments"),
    [
        ({}, ["-m", "lab.task.tf1"]),
        ({"faithful": True}, ["-m", "lab.task.tf1", "--faithful"]),
        ({"mend": True}, ["-m", "lab.task.tf1", "--mend"]),
    ],
)
def test_a_printed_program_has_a_runner(switches: dict[str, bool], arguments: list[str]) -> None:
    data = {"data_dir": "mine", "cluster_args": ()}
    listing = changed(ALONE, listing=True, **data, **switches)
    assert argv(PLACE, listing) == [
        sys.executable,
        *arguments,
        "/runs/r1/program/old.py",
        "--steps",
        "5",
    ]
    # It has no flag for its data: a variable has the directory for `input_data`.
    assert environ(PLACE, listing, 0, {})["LAB_DATA_DIR"] == "/data/mine"


def test_templates_and_placeholders_are_filled_in_for_the_task() -> None:
    templates = ("--kind={job}", "--chiefs={chief_hosts}")
    args = ("{index}", "--workers={worker_hosts}", '{"job": 1}')
    request = changed(ALONE, cluster=TWO, cluster_args=templates, args=args)
    filled = ["--kind=worker", "0", "--workers=tf1:1,tf2:1", '{"job": 1}']
    assert argv(PLACE, request)[-4:] == filled
    # The arguments of an experiment are its own.
    assert argv(PLACE, changed(request, own=False))[-4:] == ["--kind=worker", *args]
