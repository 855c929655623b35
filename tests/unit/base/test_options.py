"""An option that a function declares once is in every place that shows or reads options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest

from lab.base.converters import counts, one_of
from lab.base.errors import InputError, LabError
from lab.base.options import Argument, Flag, Switch, parameters, reads_options
from lab.cli import main
from lab.cli.completion import candidates
from lab.protocol.volume import RunSpec
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.runner.store.settings import command as command_of
from lab.runner.store.settings import settings_of
from lab.verbs import run as run_module
from lab.verbs import run as training
from lab.verbs import simulate as module
from lab.verbs.printing import prints


@reads_options
def dig(
    place: Annotated[str, Argument(parse=one_of("here", "there"))],
    *,
    depth: Annotated[int | Sequence[int], Flag(parse=counts(9), shows="METRES")] = 1,
    soil: Annotated[str, Flag(parse=str.encode)] = "",
    CPU: Annotated[bool, Switch()] = False,  # noqa: N803
) -> dict[str, object]:
    """Dig.

    Args:
        place: Where.
        depth: Depths of the hole, each in
            metres.
        soil: Its name, as bytes.
        CPU: CPU cores dig, too.

    Raises:
        InputError: It is too deep.
    """
    assert isinstance(CPU, bool)  # a function can use a switch as it is
    return {"place": place, "depth": depth, "soil": soil, "CPU": CPU}


def show(dug: Callable[[], dict[str, object]], *, json: bool) -> None:
    print(dug(), json)


command = prints(dig, show)


@pytest.fixture
def _digs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "command", command)


@pytest.mark.usefixtures("_digs")
def test_it_is_a_flag_with_its_help_and_completion(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["there", "--depth", "2,3", "--soil", "x", "--CPU=false", "--json"]
    assert main(["simulate", *given]) == 0
    dug = {"place": "there", "depth": (2, 3), "soil": b"x", "CPU": False}
    assert capsys.readouterr().out == f"{dug} True\n"
    assert main(["simulate", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "  --depth METRES   depths of the hole, each in metres (default: 1)\n" in shown
    assert "  --CPU            CPU cores dig, too\n" in shown
    flags = ["--depth", "--soil", "--CPU", "--json", "--help"]
    assert candidates(["simulate", "--"]) == flags
    assert candidates(["simulate", ""]) == ["here", "there"]


@pytest.mark.usefixtures("_digs")
def test_a_wrong_value_names_the_flag_or_the_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "here", "--depth", "10"]) == 2
    assert capsys.readouterr().err.startswith("error: --depth: '10' is not ")
    with pytest.raises(InputError, match=r"^depth: '10' is not "):
        dig("here", depth=10)
    with pytest.raises(InputError, match=r"^place: 'up' is not here or there$"):
        dig("up")


@pytest.mark.parametrize("depth", [2, [2], "2", (2,)])
def test_python_gives_a_value_a_list_or_a_text(depth: int | Sequence[int] | str) -> None:
    found = dig("here", depth=depth, CPU=True)
    assert found == {"place": "here", "depth": (2,), "soil": "", "CPU": True}
    assert dig("here")["depth"] == 1  # a default is a value, not a text


FLAG = 'patience: Annotated[float | str, Flag(parse=duration, shows="TIME")] = 0.0'
PATIENCE = {
    "    share: Share = False,\n": f"    {FLAG},\n",
    "        max_time: Save a": "        patience: How long to be\n            patient.\n",
}
"""An option that is added to `lab.run`: before these lines of its module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientSpec(RunSpec):
    """A run with the option as a field."""

    patience_s: float = 0.0


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunInfo]:
    """`lab.run` with the option; returns the run that it would start."""
    text = Path(training.__file__).read_text("utf-8")
    for place, line in PATIENCE.items():
        assert text.count(place) == 1
        text = text.replace(place, line + place)
    added = ModuleType(training.__name__)
    monkeypatch.setitem(sys.modules, training.__name__, added)
    exec(compile(text, "training.py", "exec"), vars(added))  # noqa: S102
    asked: list[RunSpec] = []

    def stop(spec: RunSpec, *_: object, **__: object) -> None:
        asked.append(spec)
        raise LabError("enough")

    vars(added).update(RunSpec=PatientSpec, prepare_run=stop)
    monkeypatch.setattr(run_module, "command", prints(added.run, json="", quiet=True))

    def asks(call: Callable[[], object]) -> RunInfo:
        with suppress(LabError):
            call()
        return RunInfo("x", replace(asked[-1], program="mnist_async.py"), backend="local")

    return asks


def test_an_option_of_a_run_is_added_in_one_place(
    train: Callable[..., RunInfo], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = train(lambda: main(["run", "async"]))
    patient = train(lambda: main(["run", "async", "--patience", "90s"]))
    by_name = train(lambda: sys.modules[training.__name__].run("async", patience=90))
    assert patient.spec == by_name.spec != usual.spec
    assert main(["run", "async", "--patience", "long"]) == 2
    assert "error: --patience: 'long' is not a duration" in capsys.readouterr().err
    assert main(["run", "--help"]) == 0
    assert "how long to be patient (default: 0)\n" in capsys.readouterr().out
    assert candidates(["run", "--pat"]) == ["--patience"]
    assert "--patience 90s" in command_of(patient)
    assert settings_of(RunDir(tmp_path), patient)["patience"] == "90s"
    assert "patience" not in settings_of(RunDir(tmp_path), usual)


def test_options_of_a_backend_from_python() -> None:
    (own,) = [each for each in parameters(training.run) if each.name == "option"]
    assert own.value_of({"network": "isolated", "time": "2h"}) == ("network=isolated", "time=2h")
