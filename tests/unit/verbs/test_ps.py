"""`lab ps NAME` cuts nothing in a narrow terminal."""

from __future__ import annotations

import re

import pytest

from lab.backends.environment import TaskInfo
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.states import State
from lab.verbs.ps import TaskRow, Tasks

NODE = "node-of-a-long-name"
GPUS = ("GPU-11111111-1111-1111-1111-111111111111", "GPU-22222222-2222-2222-2222-222222222222")
RUN = "20260101-0000-a-program-with-a-long-name-of-40-characters-aaaa"


def test_long_names_are_wrapped_and_not_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    task = TaskInfo("worker-999", NODE, f"{NODE}:12345", GPUS, True, "running (healthy)")
    Tasks([TaskRow(task, RUN, TaskStatus("worker-999", State.TRAINING))]).show()
    lines = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 80
    title = next(line for line in lines if line.startswith("task"))
    begins = [match.start() for match in re.finditer(r"\S+", title)]
    columns = zip(begins, [*begins[1:], 80], strict=True)
    shown = ["".join(line[one:end].strip() for line in lines) for one, end in columns]
    for cell in (
        "worker-999",
        NODE,
        f"{NODE}:12345",
        "".join(GPUS),
        "running(healthy)",
        "training",
    ):
        assert any(column.endswith(cell) for column in shown), cell
    assert shown[-1].startswith(f"in run{RUN}")
