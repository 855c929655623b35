"""Lines on a narrow terminal break at blanks, and never inside a path or a command."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lab.base.console import show, with_command_name
from lab.base.text import bounded, wrapped
from lab.verbs.live_view import LiveView
from tests.support.specs import info

COMMAND = "`lab logs 20261126-0241-async-f3a3 --tensorflow`"
NOTICE = f"TensorFlow's own lines are not shown: {COMMAND}"
PATH = "/home/ada/a-long-directory/another-long-directory/with-hyphens/cluster.yaml:12:5:"


def test_a_command_a_path_and_a_quoted_name_are_never_divided() -> None:
    first = "TensorFlow's own lines are not shown:"
    assert wrapped(NOTICE, 80, indent="  ") == [first, f"  {COMMAND}"]
    assert wrapped(NOTICE, 20)[-1] == COMMAND  # alone on its line, because it is longer
    line = f"{PATH} nodes.tf2: there is no 'my own file.yaml' here"
    second = "  nodes.tf2: there is no 'my own file.yaml' here"
    assert wrapped(line, 60, indent="  ") == [PATH, second]
    assert "  'my own file.yaml' here" in wrapped(line, 35, indent="  ")


@given(st.text(alphabet="ab `'-/é", max_size=120).map(bounded), st.integers(1, 100))
def test_every_character_but_blanks_stays_and_only_whole_words_are_too_long(
    line: str, width: int
) -> None:
    lines = wrapped(line, width)
    assert "".join("".join(lines).split()) == "".join(line.split())
    for each in lines:
        assert len(each) <= width or " " not in each or "`" in each or "'" in each


@pytest.mark.parametrize("columns", [80, 50])
def test_a_notice_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(slave, "w", encoding="utf-8") as stream, os.fdopen(master, "rb", 0) as screen:
        monkeypatch.setattr("sys.stderr", stream)
        show(NOTICE)
        show("end")
        shown = b""
        while not shown.endswith(b"end\r\n"):
            shown += screen.read(10_000)
    command = with_command_name(COMMAND)
    lines = ["TensorFlow's own lines are not shown:", f"  {command}", "end", ""]
    assert shown.decode().split("\r\n") == lines


def test_the_live_view_divides_no_command() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with LiveView(info(), console) as view:
        view.show(NOTICE)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count(f"  {with_command_name(COMMAND)}\n") == 1
