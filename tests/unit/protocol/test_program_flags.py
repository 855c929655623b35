"""The registry has every flag of the programs, so that a wrong one starts nothing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from lab.protocol.experiments.experiment import Experiment
from lab.protocol.experiments.registry import EXPERIMENTS

SCRIPTS = Path(__file__).parents[3] / "scripts"

BY_THE_REQUEST = {"data_dir"}
READ_BY_HELPERS = {
    "begin_training(": {"record_every", "batch_size"},
    "test_is_due()": {"eval_every"},
    "Chief(": {"checkpoint_dir", "checkpoint_every"},
    "checkpoint_directory(flags)": {"checkpoint_dir"},
    "server_config(flags)": {"gpu_memory_fraction"},
}
"""Part of a program's text to the flags that the called function reads."""
_OF_THE_CLUSTER = {"job_name", "task_index"}


def read_flags(program: Path) -> set[str]:
    text = program.read_text()
    found = set(re.findall(r"\bflags\.([a-z_]+)", text))
    found = found.union(*(names for call, names in READ_BY_HELPERS.items() if call in text))
    if "import mnist_async" in text:
        found |= read_flags(SCRIPTS / "mnist_async.py") - {"eval_every"}
    return {name for name in found if not name.endswith("_hosts")} - _OF_THE_CLUSTER


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_every_flag_that_is_read_is_registered_and_no_other(experiment: Experiment) -> None:
    program = SCRIPTS / experiment.program
    used = read_flags(program)
    if not experiment.has_data:  # The server's share of the GPU is then TensorFlow's own.
        used.discard("gpu_memory_fraction")
    assert set(experiment.flags) == used - BY_THE_REQUEST
    assert experiment.has_data == ("data_dir" in used)


def test_a_program_takes_its_flags_from_the_registry_by_the_name_of_an_experiment() -> None:
    for program in sorted({each.program for each in EXPERIMENTS.values()}):
        text = (SCRIPTS / program).read_text()
        (name,) = re.findall(r'(?:experiment_flags|begin)\("([a-z-]+)", __doc__\)', text)
        assert EXPERIMENTS[name].program == program


@pytest.mark.parametrize("program", sorted({each.program for each in EXPERIMENTS.values()}))
def test_a_program_begins_with_what_it_shows_and_what_to_try(program: str) -> None:
    documentation = ast.get_docstring(ast.parse((SCRIPTS / program).read_text()))
    title, empty, shows, try_to_break, end, *_ = documentation.splitlines()
    assert title.endswith(".")
    assert (empty, end) == ("", "")
    assert shows.startswith("Shows: ")
    assert try_to_break.startswith("Try to break: ")


def test_async_and_sync_differ_only_in_the_sections_that_they_name() -> None:
    texts = [(SCRIPTS / f"mnist_{name}.py").read_text() for name in ("async", "sync")]
    one, other = (re.split(r"^ *# ---- ([0-9])\.", text, flags=re.MULTILINE)[1:] for text in texts)
    assert one[::2] == other[::2] == list("123456789")
    sections = zip(one[::2], one[1::2], other[1::2], strict=True)
    assert [number for number, *both in sections if len({each.strip() for each in both}) > 1] == [
        *"168"
    ]


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_programs_that_check_their_step_join_by_themselves(experiment: Experiment) -> None:
    """One that does not look would begin with the others, the other way round a second late."""
    tree = ast.parse((SCRIPTS / experiment.program).read_text())
    reports = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "ready"
    ]
    looks = any(word.arg == "global_step" for call in reports for word in call.keywords)
    assert looks == experiment.joins_at_step
