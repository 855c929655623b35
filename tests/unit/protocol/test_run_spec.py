"""Every option of a run is in its reproduction command and among its settings."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.volume import RunSpec
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.runner.store.settings import command, settings_of

INFO = RunInfo("x", RunSpec("async", "mnist_async.py"), backend="local")

# These follow from the experiment, the program or another option.
DERIVED = {
    *("program", "programs", "services", "gang", "restarts", "horovod"),
    *("tf_config", "folder", "framework", "ready_s", "must_talk", "results", "origin"),
}
OPTIONS = [each.name for each in fields(RunSpec) if each.name not in DERIVED]


def with_another(name: str) -> RunInfo:
    """The same run with another value of one option."""
    value: object
    match getattr(INFO.spec, name):
        case dict() if name == "env":
            value = {"": {"A": "b c"}}
        case OnFailure():
            value = OnFailure.CONTINUE
        case bool(old):
            value = not old
        case int(old) | float(old):
            value = old + 1
        case str():
            value = "another"
        case tuple():
            value = ("another",)
        case _:
            value = {"worker-1": "10s"}
    return replace(INFO, spec=replace(INFO.spec, **{name: value}))


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_a_setting_and_in_the_command_that_makes_the_run_again(
    name: str, tmp_path: Path
) -> None:
    run, other = RunDir(tmp_path), with_another(name)
    assert command(other) != command(INFO), "add it to lab/runner/store/settings.py"
    assert settings_of(run, other) != settings_of(run, INFO), (
        "add it to lab/runner/store/settings.py"
    )
