"""Evidence of whole trainings as listings: the class of each row, and the page in step with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.listing_proof import LINES, PAGE, STEPS, page, read, result

ROW: dict[str, Any] = {
    "number": 1,
    "state": "succeeded",
    "reason": "",
    "begun": "2026-11-23T02:59:07+00:00",
    "commit": "1234567890",
    "local_steps": [27500, 27500, 27500],
    "counted": [27500, 27500, 27500],
    "global_step": STEPS,
    "retried": 2,
    "accuracy": [0.8866, 0.8871, 0.8871],
    "seconds": 904.1,
    "load_mean": 2.5,
}


def totals(*rows: dict[str, Any]) -> list[str]:
    return [line for line in page(rows).splitlines() if line.startswith("- ")]


def test_the_page_is_in_step_with_its_rows() -> None:
    assert PAGE.read_text() == page(read(LINES.read_text()))


def test_a_complete_run_counts_and_its_refused_steps_are_summed() -> None:
    loaded, others, *_ = totals(ROW, {**ROW, "number": 2, "retried": 1})
    assert "2 of 2 runs made all 82,500 steps. In 2 of these" in others
    assert "in 2 the global step is" in others
    assert others.endswith("3 refused steps ran again.")
    assert "0 of 0 runs" in loaded


def test_a_run_under_load_is_counted_apart() -> None:
    loaded, others, *_ = totals(ROW, {**ROW, "load_mean": 12.1})
    assert loaded.startswith("- With request ids that do not repeat, under load: 1 of 1 ")
    assert others.startswith("- With request ids that do not repeat, others: 1 of 1 ")


@pytest.mark.parametrize("commit", [{"commit": "9279a0cf11"}, {"commit": ""}])
def test_a_run_with_tensorflows_own_request_ids_is_counted_apart(commit: dict[str, str]) -> None:
    loaded, others, before, _ = totals(ROW, {**ROW, **commit}, {**ROW, "load_mean": 20.0, **commit})
    assert "0 of 0 runs" in loaded
    assert "1 of 1 runs" in others
    assert before.startswith("- Before, with TensorFlow's own request ids: 2 of 2 ")


def test_a_step_counted_twice_and_a_lost_count_show() -> None:
    _, others, *_ = totals({**ROW, "counted": [27500, 27501, 27500], "global_step": STEPS - 1})
    assert "1 of 1 runs made" in others
    assert "In 0 of these" in others
    assert "in 0 the global step" in others


def test_failed_short_and_unfinished_runs_are_not_complete_and_are_in_the_table() -> None:
    started = {"number": 4, "state": "started", "begun": "2026-11-23T02:59:07+00:00"}
    short = {**ROW, "local_steps": [550, 550, 550]}
    failed = {**ROW, "state": "failed", "reason": "worker-0: lost"}
    text = page([short, failed, started])
    assert "0 of 2 runs made" in text
    assert "without a result: 1." in text
    assert "failed: worker-0: lost" in text
    assert "| 4 | 2026-11-23 02:59:07 |  | started |" in text


def test_the_last_line_of_each_run_is_its_row() -> None:
    start = {"number": 1, "state": "started"}
    text = "\n".join(map(json.dumps, [start, ROW, {**start, "number": 2}]))
    assert [row["state"] for row in read(text)] == ["succeeded", "started"]


def test_a_run_is_read_from_its_directory(tmp_path: Path) -> None:
    (tmp_path / "lab.log").write_text("starting\nerror: no such cluster\n")
    assert result(tmp_path) == {"state": "no result", "reason": "error: no such cluster"}
    run_dir = tmp_path / "runs/a-run"
    for folder in ("tasks", "logs"):
        (run_dir / folder).mkdir(parents=True)
    (run_dir / "summary.json").write_text('{"state": "succeeded", "reason": ""}')
    for worker, steps in enumerate([100, 200]):
        records = [
            {"kind": "event", "message": "TensorFlow refused a step by mistake; it runs again"},
            {"kind": "event", "message": "waits for worker-1"},
            {"kind": "final", "accuracy": 0.5 + worker},
        ]
        (run_dir / f"tasks/worker-{worker}.jsonl").write_text("\n".join(map(json.dumps, records)))
        (run_dir / f"logs/worker-{worker}.log").write_text(
            f"noise\ncounts: local_step={steps} counted={steps + 1} global_step={200 + worker}\n"
        )
    assert result(tmp_path) == {
        "run_id": "a-run",
        "state": "succeeded",
        "reason": "",
        "local_steps": [100, 200],
        "counted": [101, 201],
        "global_step": 201,
        "retried": 2,
        "accuracy": [0.5, 1.5],
    }
