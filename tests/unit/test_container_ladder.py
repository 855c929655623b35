"""The ladder from processes to containers: its samples, its ratios, and the page that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import container_ladder as ladder
from benchmarks.container_ladder import Measured
from benchmarks.measure import Setting
from benchmarks.trainings import Workplace
from lab.config import load_cluster

ROOT = Path(__file__).parents[2]


def test_cpu_ticks_leave_out_idle_and_waiting_time() -> None:
    stat = "cpu  100 20 30 9000 800 4 5 6 0 0\ncpu0 1 1 1 1 1 1 1 0 0 0\n"
    assert ladder.cpu_ticks(stat) == (159, 39)


def test_each_ratio_is_the_last_rate_over_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {ladder.RUNGS[0]: 400.0, ladder.RUNGS[-1]: 300.0, ladder.ONE_NODE: 360.0}
    monkeypatch.setattr(ladder.engine, "ready", lambda _: _Ready())
    monkeypatch.setattr(
        ladder, "_measure", lambda rung, *_: Measured(rates.get(rung, 350.0), 4000.0, 900.0)
    )
    found = ladder.measure(Setting(Workplace(ROOT, {}), 6, True, ()))
    assert [each.found and each.found.median for each in found] == [0.75, 1.2]
    assert [each.verdict() for each in found] == ["missed", "met"]
    assert [each.verdict() for each in ladder.unmeasured()] == ["not measured"] * 2


def test_the_table_has_the_cpu_time_of_each_rung() -> None:
    raw = {
        "rungs": ["a", "b"],
        "rounds": [[400.0, 300.0]] * 6,
        "cpu_us": [[4000.0, 5000.0]] * 6,
        "kernel_us": [[500.0, 1200.0]] * 6,
    }
    assert ladder.page_table({"raw": raw}).splitlines()[2:] == [
        "| a | 400 |  |  | 4,000 | 500 |",
        "| b | 300 | 0.75 (0.75 to 0.75) | 0.75 (0.75 to 0.75) | 5,000 | 1,200 |",
    ]


def test_the_page_shows_what_was_measured(tmp_path: Path) -> None:
    kept = json.loads((ROOT / "benchmarks/results.json").read_text())
    copy = tmp_path / "containers.md"
    copy.write_text(ladder.PAGE.read_text())
    ladder.keep_in_page(kept, copy)
    assert copy.read_text() == ladder.PAGE.read_text()


def test_all_tasks_of_the_last_cluster_are_on_one_node() -> None:
    cluster = load_cluster(ladder.ONE_NODE_CLUSTER)
    assert list(cluster.nodes) == ["tf1"]


class _Ready:
    def __enter__(self) -> str:
        return ""

    def __exit__(self, *_: object) -> None:
        pass
