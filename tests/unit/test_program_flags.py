"""The registry knows every flag of the programs, so that a wrong one starts nothing."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

import pytest

from lab.task.experiments import EXPERIMENTS, Experiment
from lab.task.flags import task_flags, training_flags

SCRIPTS = Path(__file__).parents[2] / "scripts"

BY_THE_AGENT = {"job_name", "task_index", "ps_hosts", "worker_hosts"}
BY_THE_REQUEST = {"data_dir"}


def own_flags(program: Path) -> set[str]:
    """What a program adds to the shared flags: found in its text, without running it."""
    calls = [
        node for node in ast.walk(ast.parse(program.read_text())) if isinstance(node, ast.Call)
    ]
    adds = [call for call in calls if getattr(call.func, "attr", "") == "add_argument"]
    return {ast.literal_eval(call.args[0]).removeprefix("--") for call in adds}


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_every_flag_is_registered(experiment: Experiment) -> None:
    program = SCRIPTS / experiment.program
    trains = "training_flags(" in program.read_text()
    shared = {
        option.removeprefix("--")
        for action in (training_flags if trains else task_flags)("", ())._actions
        if not isinstance(action, argparse._HelpAction)
        for option in action.option_strings[:1]
    }
    every = shared | own_flags(program)
    assert set(experiment.flags) == every - BY_THE_AGENT - BY_THE_REQUEST


def test_only_the_synchronous_program_aggregates() -> None:
    assert "replicas_to_aggregate" in own_flags(SCRIPTS / "mnist_sync.py")
    assert "replicas_to_aggregate" not in EXPERIMENTS["async"].flags
