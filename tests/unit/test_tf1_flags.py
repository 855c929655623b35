"""`tf.app.flags` of TensorFlow 1.0 to 1.4, on absl's flags."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from absl import flags

from lab.task.tf1.flags import restore_flags


@pytest.fixture
def values() -> flags.FlagValues:
    """Flags as a library leaves them to a program: one is declared."""

    class Values(flags.FlagValues):
        """A class of its own, so that no other test sees the changed methods."""

    found = Values()
    flags.DEFINE_string("log_dir", "", "the library's", flag_values=found)
    restore_flags(found)
    return found


def declared(values: flags.FlagValues) -> Any:
    flags.DEFINE_string("log_dir", "logs", "the program's", flag_values=values)
    flags.DEFINE_integer("steps", 10, "", flag_values=values)
    flags.DEFINE_boolean("sync", True, "", flag_values=values)
    return values


def test_the_programs_declaration_wins(values: flags.FlagValues) -> None:
    found = declared(values)
    found(["program.py"])
    assert found.log_dir == "logs"
    # A second declaration by the program is an error, as it was.
    with pytest.raises(flags.DuplicateFlagError):
        flags.DEFINE_integer("steps", 5, "", flag_values=values)


def test_undeclared_arguments_are_ignored(values: flags.FlagValues) -> None:
    found = declared(values)
    left = found(["program.py", "--unknown=1", "--steps=20", "data"])
    assert (found.steps, left) == (20, ["program.py", "--unknown=1", "data"])


@pytest.mark.parametrize(
    ("arguments", "sync", "left"),
    [
        ([], True, []),
        (["--nosync"], False, []),
        (["--sync=False"], False, []),
        (["--sync", "False"], False, []),
        (["--sync", "true", "data"], True, ["data"]),
        (["--sync", "data"], True, ["data"]),
        (["--steps", "1", "--sync", "0"], False, []),
    ],
)
def test_forms_of_a_boolean(
    values: flags.FlagValues, arguments: list[str], sync: bool, left: list[str]
) -> None:
    found = declared(values)
    assert found(["program.py", *arguments])[1:] == left
    assert found.sync is sync


def test_parsing_by_the_old_name(values: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = declared(values)
    monkeypatch.setattr(sys, "argv", ["program.py", "--steps=30", "--other"])
    found._parse_flags()
    assert found.steps == 30
    found._parse_flags(["program.py", "--steps=40"])
    assert found.steps == 40
