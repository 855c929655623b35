"""An option that a function declares once is in every place that shows or reads options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import pytest

from lab.cli import main
from lab.cli.commands import simulate as module
from lab.cli.completion.spec import specs
from lab.errors import InputError
from lab.options import Argument, Flag, Switch, presents, read_options
from lab.options.types import one_of
from lab.units import counts


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
    return read_options(dig, locals())


@presents(dig)
def command(
    dug: Callable[[], dict[str, object]], *, loud: Annotated[bool, Switch("x")] = False
) -> None:
    print(dug(), loud)


@pytest.fixture
def _digs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "command", command)


@pytest.mark.usefixtures("_digs")
def test_it_is_a_flag_with_its_help_and_completion(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["there", "--depth", "2,3", "--soil", "x", "--CPU=false", "--loud"]
    assert main(["simulate", *given]) == 0
    dug = {"place": "there", "depth": (2, 3), "soil": b"x", "CPU": False}
    assert capsys.readouterr().out == f"{dug} True\n"
    assert main(["simulate", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "  --depth METRES   depths of the hole, each in metres (default: 1)\n" in shown
    assert "  --CPU            CPU cores dig, too\n" in shown
    (spec,) = [each for each in specs() if each.name == "simulate"]
    assert [each.name for each in spec.options] == ["depth", "soil", "CPU", "loud", "help"]
    assert spec.arguments[0].choices == ("here", "there")


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
