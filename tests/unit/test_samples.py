"""The notebooks' sample runs: complete, small, without machine names, and true to their text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from lab import api
from lab.run.summarize import summarize
from tools import samples
from tools.samples import INDEX, RECIPES, ROOT, SAMPLES

MADE = json.loads(INDEX.read_text("utf-8"))
NAMES = [name for recipe in RECIPES for name in recipe.names]
MOST_BYTES = 3_000_000

# The book's table, as notebook 06_reproduce shows it: epoch to the global steps of workers 0 to 2.
PRINTED = {
    9: (10896, 11085, 37367),
    19: (22453, 22728, 53859),
    29: (39019, 39074, 70299),
    39: (55513, 55599, 76999),
    49: (72002, 72105, 82499),
}


def sample(name: str) -> api.Run:
    return api.find(MADE[name]["run"], runs_dir=SAMPLES)


def test_the_index_is_complete() -> None:
    assert sorted(MADE) == sorted(NAMES)
    there = {path.name for path in SAMPLES.iterdir() if path.is_dir()}
    assert there == {each["run"] for each in MADE.values()}


def test_the_index_has_the_commands() -> None:
    told = {name: each["command"] for name, each in MADE.items()}
    assert told == {name: f"lab {each.command}" for each in RECIPES for name in each.names}


def test_all_of_it_is_small() -> None:
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) < MOST_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_holds_records_and_no_path_of_a_machine(name: str) -> None:
    run = sample(name)
    files = {str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file()}
    names = run.info.task_names()
    of_tasks = {f"tasks/{task}.jsonl" for task in names} | {f"status/{task}.json" for task in names}
    assert files == {"run.json", "summary.json", *of_tasks}
    for file in files:
        text = (run.path / file).read_text("utf-8")
        assert re.findall(r'(?<![\w.])/(?:\w[\w.-]*/)+\w+|(?<=")/', without_jobs(text)) == []


def without_jobs(text: str) -> str:
    """The text without TensorFlow's names of devices, `/job:ps/task:0`."""
    return re.sub(r"/(job|replica|task|device):[\w:]+", "", text)


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_a_whole_run_that_went_well(name: str) -> None:
    run = sample(name)
    assert run.summary.state == "succeeded"
    assert run.summary.records_lost == 0
    assert summarize(run.directory).records_lost == 0  # counted anew, from the records themselves
    assert run.summary.as_expected
    assert run.records().attrs["damaged"] == ()
    assert run.info.git is not None
    assert run.info.git["dirty"] is False
    assert run.summary.global_step == run.records()["global_step"].max()


@pytest.mark.parametrize("name", NAMES)
def test_a_samples_summary_follows_from_its_files(name: str) -> None:
    """`lab show` and `lab report` read the files, a notebook the summary."""
    run = sample(name)
    told = summarize(run.directory)
    assert told == run.summary
    assert {task.state for task in told.tasks} == {"succeeded"}
    assert all(task.time_s for task in told.tasks)


def test_the_chapter_is_the_books_within_two_and_a_half_percent() -> None:
    run = sample("chapter")
    assert run.summary.global_step == 82_500
    assert run.summary.updates_conserved
    ends = run.records().query("kind == 'epoch'").set_index(["epoch", "task"])["global_step"]
    for epoch, steps in PRINTED.items():
        for index, printed in enumerate(steps):
            assert ends[epoch, f"worker-{index}"] == pytest.approx(printed, rel=0.025)


def test_async_is_stale_by_two_at_most() -> None:
    run = sample("async")
    assert run.summary.global_step == 3 * 3 * 550
    assert run.summary.updates_conserved
    assert run.summary.mean_staleness is not None
    assert 0.5 < run.summary.mean_staleness <= 2


def test_sync_makes_one_update_of_three_and_all_test_the_same() -> None:
    run = sample("sync")
    assert run.summary.global_step == 3 * 550
    assert len({task.accuracy for task in run.summary.tasks if task.job_name == "worker"}) == 1


def fault_time(run: api.Run) -> float:
    """When its fault began."""
    records = run.records()
    return float(records[records["message"].str.startswith("fault: ", na=False)]["time_unix"].min())


def parted(run: api.Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The steps before the fault, and those after it as long as all train."""
    steps, began = run.steps(), fault_time(run)
    first_end = steps.groupby("task", observed=True)["time_unix"].max().min()
    return steps[steps["time_unix"] < began], steps[steps["time_unix"].between(began, first_end)]


def left_of_the_pace(name: str) -> float:
    """Updates per second after the fault as a share of those before."""

    def pace(part: pd.DataFrame) -> float:
        counted, times = part["global_step"], part["time_unix"]
        return float((counted.max() - counted.min()) / (times.max() - times.min()))

    before, after = parted(sample(name))
    return pace(after) / pace(before)


def own_steps(steps: pd.DataFrame) -> pd.Series:
    """The number of these by task."""
    spans = steps.groupby("task", observed=True)["local_step"].agg(["min", "max"])
    return spans["max"] - spans["min"]


def test_a_straggler_costs_sync_most_and_a_backup_worker_little() -> None:
    assert 0.2 < left_of_the_pace("sync-straggler") < 0.45
    assert 0.7 < left_of_the_pace("sync-backup") < 1.1


def test_a_straggler_costs_async_its_own_steps_alone() -> None:
    """On cores that all share the others even gain by it."""
    assert 0.7 < left_of_the_pace("async-straggler") < 1.1
    own = own_steps(parted(sample("async-straggler"))[1])
    assert own["worker-2"] < 0.4 * min(own["worker-0"], own["worker-1"])


def test_with_a_backup_worker_three_gradients_are_computed_for_an_update_of_two() -> None:
    run = sample("sync-backup")
    made = run.steps().groupby("task", observed=True)["local_step"].max()
    assert made.sum() == pytest.approx(3 * 1650, rel=0.01)
    slowed = own_steps(parted(run)[1])
    assert slowed["worker-2"] < 0.5 * slowed["worker-0"]


def test_the_slow_workers_gradients_are_the_stale_ones() -> None:
    _, after = parted(sample("async-straggler"))
    slowed = after.groupby("task", observed=True)["staleness"]
    means, most = slowed.mean(), slowed.max()
    assert means["worker-2"] > max(means["worker-0"], means["worker-1"])
    assert most["worker-2"] > 3 * max(most["worker-0"], most["worker-1"])


def test_a_moving_average_needs_three_more_calls() -> None:
    plain, averaged = (
        sample(name).summary.steps_per_s for name in ("links-1-worker", "links-average")
    )
    assert plain is not None
    assert averaged is not None
    assert plain / averaged == pytest.approx(5 / 2, rel=0.1)


def test_eight_workers_end_with_a_higher_loss_than_one() -> None:
    loss = {
        name: next(each.value for each in sample(name).summary.results if each.name == "test loss")
        for name in ("staleness-1", "staleness-8")
    }
    assert loss["staleness-1"] is not None
    assert loss["staleness-8"] is not None
    assert loss["staleness-8"] > 1.2 * loss["staleness-1"]


def test_a_second_server_does_not_help_where_one_holds_the_matrix() -> None:
    one, two = (sample(name).summary.steps_per_s for name in ("links-4-workers", "links-2-servers"))
    assert two == pytest.approx(one, rel=0.15)


def test_links_are_the_limit_and_the_ring_is_the_quicker() -> None:
    parameters = 4 * (784 * 500 + 500 + 500 * 10 + 10)
    most = 12.5e6 / parameters
    assert sample("links-1-worker").summary.steps_per_s == pytest.approx(most / 2, rel=0.2)
    assert sample("links-4-workers").summary.steps_per_s == pytest.approx(most, rel=0.2)
    ring = sample("links-ring").summary.steps_per_s
    assert ring is not None
    assert ring * 400 > 1.5 * most * 100


def a_run(store: Path, message: str) -> Path:
    run = store / "20260101-0000-async-aaaa"
    (run / "tasks").mkdir(parents=True)
    (run / "status").mkdir()
    (run / "logs").mkdir()
    (run / "run.json").write_text('{"provenance": {"interpreter": "/opt/somebody/bin/python3"}}')
    (run / "summary.json").write_text("{}")
    (run / "tasks/worker-0.jsonl").write_text(json.dumps({"message": message}) + "\n")
    (run / "status/worker-0.json").write_text('{"task": "worker-0", "state": "succeeded"}')
    (run / "logs/worker-0.log").write_text("not kept")
    return run


def test_of_a_run_only_records_and_states_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "SAMPLES", tmp_path / "kept")
    run = a_run(tmp_path / "runs", "serves at tf1:2222")
    samples.keep(run)
    kept = tmp_path / "kept" / run.name
    files = [str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()]
    kept_files = ["run.json", "status/worker-0.json", "summary.json", "tasks/worker-0.jsonl"]
    assert sorted(files) == kept_files
    info = json.loads((kept / "run.json").read_text())
    assert info["provenance"]["interpreter"] == "python3"


def test_all_runs_are_made_before_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept one changes the working tree, which the next run would record as dirty."""
    done: list[str] = []

    def make(recipe: samples.Recipe, store: Path) -> list[Path]:
        done.append(f"make {recipe.names[0]}")
        return [store]

    def replace(recipe: samples.Recipe, runs: Sequence[Path]) -> None:
        done.append(f"keep {recipe.names[0]}, {len(runs)}")

    monkeypatch.setattr(samples, "make", make)
    monkeypatch.setattr(samples, "replace", replace)
    monkeypatch.setattr("sys.argv", ["samples.py", "ring", "async"])
    samples.main()
    assert done == ["make async", "make ring", "keep async, 1", "keep ring, 1"]


def test_a_run_that_names_this_machine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "SAMPLES", tmp_path / "kept")
    run = a_run(tmp_path / "runs", f"cannot open {ROOT}/scripts")
    with pytest.raises(SystemExit, match=r"worker-0\.jsonl contains"):
        samples.keep(run)
    assert not (tmp_path / "kept").exists()
