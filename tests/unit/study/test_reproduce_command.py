"""`lab reproduce`: its runs, its output and files, and its end."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.base.errors import LabError
from lab.cli import main
from lab.protocol.volume import Request, Volume
from lab.protocol.volume.states import State
from lab.runner.runner import execute_run
from lab.runner.store.directory import RunDir
from lab.study import batches
from lab.study.reproduce.claims import COUNTED, NAMES, load
from tests.support.cli import replace_backends
from tests.support.fakes import FakeBackend, FakeEnvironment, fail, record, train, write_records
from tests.support.reproducing import MadeRun, run_of, worker
from tests.support.specs import update

ROOT = Path(__file__).parents[3]
SCRIPTS = ("mnist_async.py", "mnist_sync.py", "async_fast.py", "sync_fast.py", "staleness.py")
POST = load("blog-sync")


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
    replace_backends(monkeypatch, FakeBackend("local", made=made))
    yield made
    for thread in made.threads:
        thread.join(30)


def reproduce(*arguments: str) -> int:
    return main(["reproduce", *arguments])


def flags(request: Request) -> dict[str, str]:
    pairs = (word.removeprefix("--").partition("=") for word in request.spec.args)
    return {name: value for name, _, value in pairs}


def made() -> list[Path]:
    return sorted(Path("runs").glob("reproduce-*.json"))


def left_out(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("left out: ")]


def trains(volume: Volume, request: Request) -> None:
    """A good run, with a record that no other run has."""
    loss = float(flags(request)["seed"]) + len(request.spec.start) / 2
    first = {"local_step": 1, "global_step": 1, "epoch": 0, "loss": loss}
    first["time_unix"] = time.time()
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 9, "step", **first)])
    train(volume, request)


BOOK_SUMMARY = "3 measured numbers: 3 INCONCLUSIVE; 2 statements: 2 INCONCLUSIVE"


def test_the_recipes_are_run_with_recorded_seeds(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.tasks_do = trains
    assert reproduce("book-async", "--repeats", "2", "--gpus", "none", "--seed", "5") == 3
    asked = environment.runs()
    assert [(each.spec.experiment, flags(each)) for each in asked] == [
        ("async", {"epochs": "50", "seed": str(seed)}) for seed in (5, 5, 6, 6)
    ]
    assert [dict(each.spec.start) for each in asked] == [
        {}, {"worker-2": "after 20,900 steps"},
    ] * 2  # fmt: skip
    assert environment.is_down
    out, err = capsys.readouterr()
    assert "accuracy after all" in out
    assert out.endswith(f"\n{BOOK_SUMMARY}\n")
    assert err.count("backend local: ") == 1  # equal worker counts share a target
    assert "4/4 run=late-worker" in err
    assert "error: inconclusive: 5 of 5 counted claims, such as accuracy-at-end; " in err
    found = json.loads(made()[0].read_text())
    assert found["fitted"] == {"late-worker": ["the start of worker 2 at 20,900 steps"]}
    assert {role: list(by_seed) for role, by_seed in found["runs"].items()} == {
        "whole": ["5", "6"], "late-worker": ["5", "6"],
    }  # fmt: skip


def test_each_source_has_its_recipes(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce("book-sync", "--repeats", "1", "--gpus", "none", "--quick")
    asked = environment.runs()
    assert [each.spec.experiment for each in asked] == ["sync-fast", "sync-fast", "async-fast"]
    wanted = [tuple(recipe.faults) for recipe in load("book-sync").recipes.values()]
    assert [each.spec.faults for each in asked] == wanted
    reproduce("staleness", "--repeats", "1", "--gpus", "none")  # an environment for each number
    asked = environment.runs()[3:]
    workers = [sum("worker" in task for task in each.tasks()) for each in asked]
    assert workers == [1, 1, 1, 4, 4, 4]
    given = [(flags(each)["learning_rate"], flags(each)["batch_size"]) for each in asked]
    assert given == [("1", "100"), ("0.1", "100"), ("1", "20")] * 2
    assert "6/6 run=several-small-batch" in capsys.readouterr().err


def test_a_run_that_fails_is_left_out_by_its_name(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    def second_fails(volume: Volume, request: Request) -> None:
        (fail if len(environment.runs()) == 2 else train)(volume, request)

    environment.tasks_do = second_fails
    assert reproduce("book-async", "--repeats", "2", "--gpus", "none", "--json") == 3
    failed = environment.runs()[1].run_id
    out, err = capsys.readouterr()
    assert json.loads(out)["excluded"][failed] == "it did not succeed"
    assert f"left out: run {failed}: it did not succeed" in left_out(err)


def test_a_run_that_did_not_start_is_not_judged(
    environment: FakeEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def up(*_: object, **__: object) -> None:
        raise LabError("port 2222 is in use", "end the program that uses it")

    monkeypatch.setattr(FakeBackend, "up", up)
    assert reproduce("book-async", "--repeats", "1", "--gpus", "none") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "error: port 2222 is in use; end the program that uses it"
    assert list(Path("runs").iterdir()) == []


@pytest.mark.parametrize(
    ("stop", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted in run 2 of 16 for book-async"),
        (LabError("environment 'book' went"), 1, "error: environment 'book' went"),
    ],
)
def test_a_stop_keeps_finished_runs_and_their_verdicts(
    environment: FakeEnvironment,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stop: BaseException,
    code: int,
    message: str,
) -> None:
    conduct = execute_run

    def stops(run: RunDir, *more: Any) -> object:
        if len(environment.runs()) == 1:
            update(run, state=State.FAILED, reason="the environment went")
            raise stop
        return conduct(run, *more)

    monkeypatch.setattr(batches, "execute_run", stops)
    assert reproduce("book-async", "--gpus", "none") == code
    out, err = capsys.readouterr()
    assert BOOK_SUMMARY in out
    assert message in err
    assert environment.is_down
    found = json.loads(made()[0].read_text())
    assert len(found["runs"]["whole"]) == 1
    assert list(found["excluded"].values()) == ["it did not succeed"]


def post_run(role: str, seed: int, *, spread: float = 0.3, quick: bool = False) -> MadeRun:
    """A run of the post's training, by three workers in step, or not if it is asynchronous."""
    random = np.random.default_rng([seed, len(role), int(100 * spread)])
    losses = np.exp(spread * random.standard_normal((3, 100)))
    own = range(5, 505, 5)
    totals = own if role == "whole" else [3 * local for local in own]
    workers = [worker(totals, every=5, losses=each.tolist(), rate=0.8) for each in losses]
    return run_of(POST, role, seed, workers, quick=quick)


def write_post(
    spread: float = 0.15, count: int = 8, change: Callable[[MadeRun], MadeRun] | None = None
) -> list[str]:
    """Write the runs of the post's synchronous claims; return their ids."""
    runs = [post_run("whole", seed, spread=spread) for seed in range(1, count + 1)]
    runs += [post_run("async", seed) for seed in range(1, count + 1)]
    if change is not None:
        runs = list(map(change, runs))
    return [run.write(Path("runs")).run_id for run in runs]


def judged(capsys: pytest.CaptureFixture[str], name: str, runs: Sequence[str]) -> Any:
    capsys.readouterr()
    code = reproduce(name, "--runs", ",".join(runs), "--json")
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def lost(run: MadeRun) -> MadeRun:
    return run.with_records("final", lambda *_: {"probe": 5})


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("runs", "code", "verdict", "error"),
    [
        ({}, 0, "REPRODUCED", ""),
        ({"spread": 0.3}, 1, "NOT_REPRODUCED",
         "error: not reproduced: 1 of 1 counted claim, such as steadier; "),
        ({"count": 7}, 3, "INCONCLUSIVE",
         "error: inconclusive: 1 of 1 counted claim, such as steadier; "),
        # These runs are not those of the source: a check FAILED.
        ({"change": lost}, 3, "INCONCLUSIVE", "error: inconclusive: "),
    ],
)  # fmt: skip
def test_the_verdicts_on_the_counted_claims_decide_the_exit_code(
    capsys: pytest.CaptureFixture[str], runs: dict[str, Any], code: int, verdict: str, error: str
) -> None:
    found_code, found, err = judged(capsys, "blog-sync", write_post(**runs))
    assert (found_code, found["summary"]) == (code, f"1 statement: 1 {verdict}")
    assert error in err
    assert ("error" in err) is bool(error)
    failed = {each["claim"] for each in found["claims"] if each["verdict"] == "FAILED"}
    assert failed == ({"updates-lost"} if "change" in runs else set())


@pytest.mark.usefixtures("environment")
def test_the_json_has_everything_that_a_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    ids = [*write_post(), OTHER.write(Path("runs")).run_id]
    _, found, _ = judged(capsys, "blog-sync", ids)
    assert json.loads(made()[0].read_text()) == found
    seeds = [str(seed) for seed in range(1, 9)]
    of_roles = {"whole": ids[:8], "async": ids[8:16]}
    claims = found.pop("claims")
    assert found.pop("made")
    assert found == {
        "name": POST.name,
        "source": POST.title,
        "summary": "1 statement: 1 REPRODUCED",
        "fitted": {},
        "runs": {
            role: dict(zip(seeds, several, strict=True)) for role, several in of_roles.items()
        },
        "excluded": {OTHER.info.run_id: "no claim is about a run of linear"},
    }
    expected = {"in-step": 0, "learning-rate": 0.8, "batch-size": 100, "updates-lost": 0}
    for claim, each in zip(POST.claims, claims, strict=True):
        facts = {name: getattr(claim, name) for name in ("text", "kind", "where", "unit")}
        facts |= {"claim": claim.id, "printed": claim.value, "interval": None}
        verdict = "REPRODUCED" if claim.kind in COUNTED else "OK"
        assert each == {**each, **facts, "verdict": verdict}
        assert "in 8 of 8 runs" in each["why"]
        values, ours = each["values"], each["ours"]
        assert list(values) == seeds
        assert claim.id == "steadier" or {ours, *values.values()} == {expected[claim.id]}


OTHER = post_run("whole", 30).but(experiment="linear", run_id="20260101-0000-linear-aaaa")


@pytest.mark.usefixtures("environment")
def test_a_copy_changes_no_verdict_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    ids = write_post(count=3)
    copy = Path("elsewhere") / ids[0]
    shutil.copytree(Path("runs") / ids[0], copy)
    code, found, err = judged(capsys, "blog-sync", [*ids, str(copy)])
    assert code == 3
    of = {claim["claim"]: (claim["verdict"], claim["why"]) for claim in found["claims"]}
    assert of["steadier"] == ("INCONCLUSIVE", "3 of 8 runs")
    assert of["in-step"] == ("UNCLEAR", "3 of 8 runs")
    output = f"left out: run {ids[0]} in elsewhere is a copy of run {ids[0]} in the run store"
    assert output in "\n".join(left_out(err))


@pytest.mark.usefixtures("environment")
def test_the_earliest_runs_are_kept_whatever_their_ids_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ids have minutes only, and a random end."""
    runs = [post_run("whole", seed).but(started_unix=float(-seed % 9)) for seed in range(1, 10)]
    _, found, err = judged(capsys, "blog-sync", [r.write(Path("runs")).run_id for r in runs])
    assert list(found["runs"]["whole"]) == [str(seed) for seed in (9, 8, 7, 6, 5, 4, 3, 2)]
    assert f"left out: run {runs[0].info.run_id}: the claim file asks for 8 runs" in err


@pytest.mark.usefixtures("environment")
def test_all_judges_each_source_and_names_no_run_as_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, found, err = judged(capsys, "all", write_post())
    assert [each["name"] for each in found] == list(NAMES)
    assert [each["summary"].rpartition(" ")[2] for each in found] == [
        "INCONCLUSIVE", "INCONCLUSIVE", "INCONCLUSIVE", "REPRODUCED", "INCONCLUSIVE",
    ]  # fmt: skip
    assert code == 3
    assert left_out(err) == []


@pytest.mark.usefixtures("environment")
def test_runs_that_no_claim_can_use_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    run = OTHER.but(own=True, program="x\x1b]0;owned\x07").write(Path("runs"))
    failed = post_run("whole", 1).but(state=State.FAILED).write(Path("runs"))
    assert reproduce("blog-sync", "--runs", f"{run.run_id},{failed.run_id}") == 2
    err = capsys.readouterr().err
    assert left_out(err) == [
        f"left out: run {run.run_id}: no claim is about a run of x\\x1b]0;owned\\x07",
        f"left out: run {failed.run_id}: it did not succeed",
    ]
    assert "error: no claim of blog-sync can use any of these 2 runs; " in err
    assert not {"\x1b", "\x07"} & set(err)
    assert made() == []


@pytest.mark.usefixtures("environment")
def test_a_run_that_is_under_way_is_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    run = post_run("whole", 1).write(Path("runs"))
    update(run, state=State.TRAINING)
    assert reproduce("blog-sync", "--runs", run.run_id) == 2
    output = f"error: run {run.run_id} has not ended, or is not fully collected; follow and collect"
    assert output in capsys.readouterr().err


@pytest.mark.usefixtures("environment")
def test_verdicts_are_shown_without_a_writable_store(capsys: pytest.CaptureFixture[str]) -> None:
    run = post_run("whole", 1).write(Path("runs"))
    Path("kept").write_text("")
    assert reproduce("blog-sync", "--runs", str(run.path), "--runs-dir", "kept/here") == 1
    out, err = capsys.readouterr()
    assert "1 statement: 1 INCONCLUSIVE" in out
    assert "error: kept/here: not a directory; check the path and its permissions" in err
