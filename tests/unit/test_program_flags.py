"""The registry has every flag of the programs, so that a wrong one starts nothing."""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path

import pytest

from lab.experiments.registry import EXPERIMENTS, Experiment
from lab.task.sdk.flags import task_flags, training_flags

SCRIPTS = Path(__file__).parents[2] / "scripts"

BY_THE_AGENT = {"job_name", "task_index", "ps_hosts", "worker_hosts"}
BY_THE_REQUEST = {"data_dir"}


def own_flags(program: Path) -> set[str]:
    """The flags that a program adds to the shared ones: found in its text, without running it."""
    calls = [
        node for node in ast.walk(ast.parse(program.read_text())) if isinstance(node, ast.Call)
    ]
    adds = [call for call in calls if getattr(call.func, "attr", "") == "add_argument"]
    found = {ast.literal_eval(call.args[0]).removeprefix("--") for call in adds}
    splits = "import Towers, add_flag" in program.read_text()
    return found | own_flags(SCRIPTS / "split_batch.py") if splits else found


def read_flags(program: Path) -> set[str]:
    """The names that a program, and its imported neighbours, use."""
    text = program.read_text()
    found = set(re.findall(r"\bflags\.([a-z_]+)", text))
    if "server_config(flags)" in text:
        found.add("gpu_memory_fraction")
    if "Towers(flags" in text:
        found |= read_flags(SCRIPTS / "split_batch.py")
    if "import mnist_async" in text:
        # The evaluator's own parser knows no flag that this program adds to the shared ones.
        found |= read_flags(SCRIPTS / "mnist_async.py") - own_flags(SCRIPTS / "mnist_async.py")
    return {name for name in found if not name.endswith("_hosts")}


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_every_flag_that_is_read_is_registered_and_no_other(experiment: Experiment) -> None:
    program = SCRIPTS / experiment.program
    trains = "training_flags(" in program.read_text()
    shared = {
        option.removeprefix("--")
        for action in (training_flags if trains else task_flags)("", ())._actions
        if not isinstance(action, argparse._HelpAction)
        for option in action.option_strings[:1]
    }
    known = shared | own_flags(program)
    assert set(experiment.flags) <= known
    by_itself = BY_THE_AGENT | BY_THE_REQUEST | {"gpu_memory_fraction", "strategy"}
    assert set(experiment.flags) - by_itself == read_flags(program) - by_itself
    assert ("gpu_memory_fraction" in experiment.flags) == (
        trains and "gpu_memory_fraction" in read_flags(program)
    )
    assert experiment.has_data == ("data_dir" in read_flags(program))


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_programs_that_check_their_step_join_by_themselves(experiment: Experiment) -> None:
    """One that does not look would begin with the others, the other way round a second late."""
    tree = ast.parse((SCRIPTS / experiment.program).read_text())
    waits = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "wait_for_start"
    ]
    looks = any(call.args or call.keywords for call in waits)
    assert looks == experiment.joins_at_step
