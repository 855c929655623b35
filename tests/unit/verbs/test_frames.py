"""Results that are tables are also pandas data frames."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import lab
from lab.base.errors import LabError
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.verbs.gpus import Gpus
from lab.verbs.printing import Shown, Tabular
from lab.verbs.ps import Environments, Listed
from tests.support.shown import ROOT
from tests.unit.verbs.test_gpus_command import BOX
from tools import reference

TABLES: dict[str, tuple[Callable[[], Tabular], int, set[str]]] = {
    "experiments": (lab.experiments, len(EXPERIMENTS), {"name", "jobs", "flags"}),
    "experiment": (lambda: lab.experiments("async"), 1, {"name", "jobs", "flags"}),
    "gpus": (lambda: Gpus(BOX, []), len(BOX.gpus), {"device_id", "name", "tasks"}),
    "environments": (
        lambda: Environments([Listed("mnist", "local", 4, 4, None, "", "")]),
        1,
        {"name", "backend", "runs"},
    ),
    "simulate": (lambda: lab.simulate("async", workers=[1, 2]), 2, {"workers", "steps_per_s"}),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_a_data_frame_with_a_row_for_each_entry(name: str) -> None:
    make, rows, columns = TABLES[name]
    frame = make().frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == rows
    assert columns <= set(frame.columns)


def test_the_lessons_have_a_row_for_each_stage(tmp_path: Path) -> None:
    every = lab.check(runs_dir=tmp_path).frame()
    one = lab.check("async", runs_dir=tmp_path).frame()
    assert list(one["stage"]) == list(every[every["lesson"] == "async"]["stage"])
    assert not one["passed"].any()


def test_the_results_of_a_run_have_a_row_for_each_task() -> None:
    run = lab.runs(ROOT / "notebooks/samples")[0]
    assert list(lab.show(run).frame()["task"]) == [each.task for each in run.summary.tasks]


def test_without_pandas_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(LabError, match="this needs pandas, a package of the extra `report`; inst"):
        lab.experiments().frame()


def test_what_is_no_table_has_no_frame() -> None:
    others = [kind for kind in reference.results() if not issubclass(kind, Tabular)]
    assert others
    assert not any(hasattr(kind, "frame") for kind in [Shown, *others])


def test_the_pages_on_python_name_each_function_that_returns_a_table() -> None:
    wanted = set(reference.tables().values())
    assert {f"| `lab.{name}` |" in reference.python_page() for name in wanted} == {True}
    for page in ("docs/reference/python.md", "docs/zh/reference/python.md"):
        (line,) = re.findall(r"^.*`\.frame\(\)`.*$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
        assert set(re.findall(r"`lab\.(\w+)`", line)) == wanted
