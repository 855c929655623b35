"""`lab reproduce`: its runs, its output and files, and its end."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.cli import main
from lab.errors import LabError
from lab.run.store import RunDir
from lab.service.target import Target, find_target
from lab.task.protocol import Request, Volume
from lab.task.protocol.states import State
from tests.specs import update
from tests.unit.fakes import Boots, FakeEnvironment, end, record, train, write_records

ROOT = Path(__file__).parents[2]
SCRIPTS = ("mnist_async.py", "mnist_sync.py", "async_fast.py", "sync_fast.py", "staleness.py")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEnvironment]:
    for name in ("volume", "scripts", "clusters"):
        (tmp_path / name).mkdir()
    (tmp_path / "clusters/book.yaml").write_text((ROOT / "clusters/book.yaml").read_text())
    for name in SCRIPTS:
        (tmp_path / "scripts" / name).write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    made = FakeEnvironment(tmp_path / "volume", project="book")
    monkeypatch.setattr("lab.service.run.backends", lambda: [Boots("local", made=made)])
    yield made
    for thread in made.threads:
        thread.join(30)


def reproduce(*arguments: str) -> int:
    return main(["reproduce", *arguments])


def flags(request: Request) -> dict[str, str]:
    """The last argument of the program, which counts."""
    pairs = (word.removeprefix("--").partition("=") for word in request.spec.args)
    return {name: value for name, _, value in pairs}


def made() -> list[Path]:
    """The files that hold verdicts."""
    return sorted(Path("runs").glob("reproduce-*.json"))


def test_each_kind_of_run_is_made_with_recorded_seeds_and_the_books_start(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce("book-async", "--repeats", "2", "--gpus", "none", "--seed", "5") == 1
    asked = environment.runs()
    assert [(each.spec.experiment, flags(each)) for each in asked] == [
        ("async", {"epochs": "50", "seed": "5"}),
        ("async-fast", {"epochs": "2", "seed": "5"}),
        ("async", {"epochs": "50", "seed": "5"}),
        ("async", {"epochs": "50", "seed": "6"}),
    ]
    books, late = {"worker-2": "after 20,900 steps"}, {"worker-2": "10s"}
    assert [dict(each.spec.start) for each in asked] == [books, late, late, books]
    assert environment.is_down
    out, err = capsys.readouterr()
    assert "global steps in all" in out
    assert "OUTSIDE" in out
    assert "Claims that follow from a fitted start\n" in out
    assert "the offset is fitted" in out
    assert "  independent claims: " in out
    assert "4/4 run=whole" in err
    assert "claims are not reproduced, " in err


def test_equal_worker_counts_share_a_target(
    environment: FakeEnvironment,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[object] = []

    def find(*args: Any, **options: Any) -> Target:
        found.append(args)
        return find_target(*args, **options)

    monkeypatch.setattr("lab.service.run.find_target", find)
    assert reproduce("book-async", "--repeats", "1", "--gpus", "none") == 1
    assert len(environment.runs()) == 3
    assert len(found) == 1
    assert capsys.readouterr().err.count("backend local: ") == 1


def test_quick_runs_the_quick_listings(environment: FakeEnvironment) -> None:
    reproduce("book-sync", "--repeats", "1", "--gpus", "none", "--quick")
    asked = environment.runs()
    assert [each.spec.experiment for each in asked] == [
        "sync-fast", "async-fast", "sync-fast", "async-fast",
    ]  # fmt: skip
    assert [each.spec.faults for each in asked][1:] == [
        (), ("slow:0.3,60s worker-0",), ("slow:0.3,60s worker-0",),
    ]  # fmt: skip


def test_runs_with_another_number_of_workers_have_an_environment_of_their_own(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce("staleness", "--repeats", "1", "--gpus", "none")
    asked = environment.runs()
    assert [len([task for task in each.tasks() if "worker" in task]) for each in asked] == [
        1, 1, 1, 4, 4, 4,
    ]  # fmt: skip
    given = [(flags(each)["learning_rate"], flags(each)["batch_size"]) for each in asked]
    assert given == [("1", "100"), ("0.1", "100"), ("1", "20")] * 2
    assert "6/6 run=several-small-batch" in capsys.readouterr().err


def test_a_report_reads_the_verdicts(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce("book-async", "--repeats", "1", "--gpus", "none", "--json")
    printed = json.loads(capsys.readouterr().out)
    (path,) = made()
    written = json.loads(path.read_text())
    assert written == printed
    assert set(written) == {"name", "source", "made", "counts", "verdicts", "runs"}
    assert set(written["counts"]) == {"independent", "fitted", "own", "uncounted"}
    assert written["counts"]["fitted"] == {"OUTSIDE_BAND": 15}
    assert sum(sum(each.values()) for each in written["counts"].values()) == len(
        written["verdicts"]
    )
    assert written["runs"] == [each.run_id for each in environment.runs()]
    verdict = next(each for each in written["verdicts"] if each["claim"] == "global-steps")
    assert verdict == {
        "claim": "global-steps",
        "words": "global steps in all",
        "source_value": 82500,
        "ours": {"mean": 300.0, "low": None, "high": None, "n": 1},
        "unit": "steps",
        "band": {"low": 82500.0, "high": 82500.0},
        "verdict": "OUTSIDE_BAND",
        "why": "differs in 1 of 1 run",
        "group": "independent",
        "source": "book",
        "where": "the printed log, the last line of worker 2",
        "note": "",
    }


def test_existing_runs_are_evaluated_and_none_is_made(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce("book-async", "--repeats", "1", "--gpus", "none")
    ids = [each.run_id for each in environment.runs()]
    capsys.readouterr()
    assert (
        reproduce("book-async", "--runs", f"runs/{ids[0]}, {ids[1]} {ids[2]} {ids[0]}", "--json")
        == 1
    )
    assert json.loads(capsys.readouterr().out)["runs"] == ids
    assert len(environment.runs()) == 3
    assert len(made()) == 2


def timed(volume: Volume, request: Request) -> None:
    """Two workers, whose records have times."""
    for index in range(2):
        at = {"epoch": 0, "local_step": 100, "global_step": 199 + index, "elapsed_s": index + 0.5}
        task = f"worker-{index}"
        write_records(volume, request.run_id, task, [record(task, 0, "step", loss=0.5, **at)])
    for task in request.tasks():
        end(volume, request.run_id, task, State.SUCCEEDED, exit_code=0)


def left_out(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("left out: ")]


def copied(run_id: str, to: str, new_id: str = "") -> str:
    """The path of a copy, with another id on request."""
    path = Path(to) / (new_id or run_id)
    shutil.copytree(Path("runs") / run_id, path)
    if new_id:
        RunDir(path).write(replace(RunDir(path).read(), run_id=new_id, submitted_unix=1.0))
    return str(path)


def test_a_copy_is_no_second_run(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.tasks_do = timed
    reproduce("book-async", "--repeats", "2", "--gpus", "none")
    first, _, _, second = (each.run_id for each in environment.runs())
    forged = "20260101-0000-async-aaaa"
    given = [first, second, copied(first, "elsewhere"), copied(first, "elsewhere", forged)]
    capsys.readouterr()
    assert reproduce("book-async", "--runs", ",".join(given), "--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["runs"] == [first, second]
    assert {each["ours"]["n"] for each in json.loads(out)["verdicts"]} <= {0, 2}
    assert left_out(err) == [
        f"left out: run {first} in elsewhere: a copy of run {first} in runs",
        f"left out: run {forged}: a copy of run {first}, with the same seed and records",
    ]


def test_two_runs_without_records_are_no_copies(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.tasks_do = fails
    for _ in range(2):
        reproduce("book-async", "--repeats", "1", "--gpus", "none")
    ids = [each.run_id for each in environment.runs() if "50" in flags(each)["epochs"]]
    capsys.readouterr()
    reproduce("book-async", "--runs", ",".join(ids), "--json")
    out, err = capsys.readouterr()
    assert sorted(json.loads(out)["runs"]) == sorted(ids)
    assert left_out(err) == []


def test_quick_runs_are_not_mixed_with_full_ones(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce("blog-sync", "--repeats", "1", "--gpus", "none")
    reproduce("blog-sync", "--repeats", "1", "--gpus", "none", "--quick", "--seed", "7")
    sync, others, quick_sync, quick_others = (each.run_id for each in environment.runs())
    capsys.readouterr()

    def evaluated(*ids: str) -> list[str]:
        reproduce("blog-sync", "--runs", ",".join(ids), "--json")
        out, err = capsys.readouterr()
        found: list[str] = json.loads(out)["runs"]
        left = sorted(set(ids).difference(found))
        assert sorted(left_out(err)) == [
            f"left out: run {each}: it trains 1,500 global steps, not 50,000 global steps"
            for each in left
        ]
        return found

    assert evaluated(quick_sync, others, sync, quick_others) == [sync, others]
    assert evaluated(quick_sync, quick_others) == [quick_sync, quick_others]
    assert evaluated(sync, quick_others) == [sync]  # a claim compares both kinds of runs


def test_quick_runs_of_the_same_length_are_not_mixed_with_full_ones(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    for quick in ([], ["--quick"]):
        reproduce("book-async", "--repeats", "1", "--gpus", "none", *quick)
    runs = [RunDir(Path("runs") / each.run_id) for each in environment.runs()]
    whole = {run.read().spec.experiment: run.run_id for run in runs if run.read().spec.start == {
        "worker-2": "after 20,900 steps"}}  # fmt: skip
    capsys.readouterr()
    reproduce("book-async", "--runs", ",".join(whole.values()), "--json")
    out, err = capsys.readouterr()
    assert json.loads(out)["runs"] == [whole["async"]]
    assert left_out(err) == [
        f"left out: run {whole['async-fast']}: it trains async-fast, not async"
    ]


def test_an_own_program_with_the_name_of_an_experiment_is_not_judged(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce("book-async", "--repeats", "1", "--gpus", "none")
    run = RunDir(Path("runs") / environment.runs()[0].run_id)
    update(run, own=True, program="async.py")
    capsys.readouterr()
    assert reproduce("book-async", "--runs", run.run_id) == 2
    assert f"is about run {run.run_id} of async.py; " in capsys.readouterr().err


def test_a_run_without_a_matching_claim_is_refused(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce("book-async", "--repeats", "1", "--gpus", "none")
    run_id = environment.runs()[0].run_id
    capsys.readouterr()
    assert reproduce("blog-sync", "--runs", run_id) == 2
    assert "no claim of blog-sync is about run" in capsys.readouterr().err


def test_a_run_that_is_under_way_is_not_judged(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce("book-async", "--repeats", "1", "--gpus", "none")
    run = RunDir(Path("runs") / environment.runs()[0].run_id)
    update(run, state=State.TRAINING)
    capsys.readouterr()
    assert reproduce("book-async", "--runs", run.run_id) == 2
    output = f"error: run {run.run_id} has not ended, or is not fully collected; follow it with"
    assert output in capsys.readouterr().err


def fails(volume: Volume, request: Request) -> None:
    for task in request.tasks():
        end(volume, request.run_id, task, State.FAILED, reason="exit code 1", exit_code=1)


def test_a_run_that_fails_is_in_the_result(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    def second_fails(volume: Volume, request: Request) -> None:
        (fails if len(environment.runs()) == 2 else train)(volume, request)

    environment.tasks_do = second_fails
    assert reproduce("book-async", "--repeats", "2", "--gpus", "none", "--json") == 1
    result = json.loads(capsys.readouterr().out)
    assert len(result["runs"]) == 4
    failed = next(each for each in result["verdicts"] if each["claim"] == "runs")
    assert (failed["verdict"], failed["ours"]["mean"]) == ("OUTSIDE_BAND", 1.0)


def test_a_run_that_did_not_start_is_not_judged(
    environment: FakeEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def up(*_: object, **__: object) -> None:
        raise LabError("port 2222 is in use", "end the program that uses it")

    monkeypatch.setattr(Boots, "up", up)
    assert reproduce("book-async", "--repeats", "1", "--gpus", "none") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "error: port 2222 is in use; end the program that uses it"
    assert list(Path("runs").iterdir()) == []


def test_an_interrupt_keeps_finished_runs_and_their_verdicts(
    environment: FakeEnvironment,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = importlib.import_module("lab.service.batches")
    conduct = module.execute_run

    def interrupted(*arguments: object, **named: object) -> object:
        if len(environment.runs()) == 1:
            raise KeyboardInterrupt
        return conduct(*arguments, **named)

    monkeypatch.setattr(module, "execute_run", interrupted)
    assert reproduce("book-async", "--gpus", "none") == 130
    out, err = capsys.readouterr()
    assert "\n2 runs\n" in out  # the one that was interrupted, too: it is no success
    assert "interrupted in run 2 of 5 for book-async" in err
    assert environment.is_down
    assert len(made()) == 1


def test_an_aborted_run_is_in_the_result(
    environment: FakeEnvironment,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = importlib.import_module("lab.service.batches")
    conduct = module.execute_run

    def breaks(run: RunDir, **named: object) -> object:
        if len(environment.runs()) == 1:
            update(run, state=State.FAILED, reason="the environment went")
            raise LabError("environment 'book' went")
        return conduct(run, **named)

    monkeypatch.setattr(module, "execute_run", breaks)
    assert reproduce("book-async", "--gpus", "none") == 1
    out, err = capsys.readouterr()
    assert "runs: OUTSIDE_BAND: see `lab show" in out
    assert "error: environment 'book' went" in err
    assert len(json.loads(made()[0].read_text())["runs"]) == 2


def test_an_inconclusive_result_exits_3(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    def good(volume: Volume, request: Request) -> None:
        for index in range(3):
            task = f"worker-{index}"
            ready = record(task, 0, "event", status="ready", learning_rate=0.8)
            step = record(
                task, 1, local_step=100, global_step=100, epoch=0, loss=0.5, elapsed_s=1.0
            )
            last = record(task, 2, "eval", accuracy=0.5, global_step=100)
            write_records(volume, request.run_id, task, [ready, step, last])
        final = record("worker-0", 3, "eval", accuracy=0.5, global_step=100, probe=100)
        write_records(volume, request.run_id, "worker-0", [final])
        for task in request.tasks():
            end(volume, request.run_id, task, State.SUCCEEDED, exit_code=0)

    environment.tasks_do = good
    assert reproduce("blog-sync", "--repeats", "1", "--gpus", "none", "--quick") == 3
    out, err = capsys.readouterr()
    assert "table: NOT_COMPARABLE: the post's synchronous logs are empty" in out
    assert "claims cannot be judged, such as steadier" in err


def test_verdicts_are_shown_without_a_writable_store(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce("book-async", "--repeats", "1", "--gpus", "none")
    run = str(Path("runs") / environment.runs()[0].run_id)
    Path("kept").write_text("")
    capsys.readouterr()
    assert reproduce("book-async", "--runs", run, "--runs-dir", "kept/here") == 1
    out, err = capsys.readouterr()
    assert "\n1 run\n" in out
    assert (
        "error: the results of book-async cannot be written into kept/here: Not a directory" in err
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("book-async", "--runs", "last", "--quick"), "--quick is only for new runs"),
        (("book-async", "--runs", "last", "--repeats", "3"), "--repeats is only for new runs"),
        (("book-async", "--runs", "last", "--seed", "0"), "--seed is only for new runs"),
        (("book",), "book-async, book-sync, blog-async, blog-sync, staleness or all"),
        (("book-async", "--repeats", "0"), "from 1 to 100"),
        (("book-async", "--runs", ","), "runs, such as last"),
        (("book-async", "--runs", "nothing"), "no run"),
    ],
)
def test_bad_arguments_are_refused(
    environment: FakeEnvironment,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    assert reproduce(*arguments) == 2
    assert message in capsys.readouterr().err
    assert not environment.runs()
