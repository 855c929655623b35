"""`lab sweep`: its runs one after the other, its output, and its leftovers."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cli import main
from lab.task.protocol import Request, Volume
from lab.task.protocol.states import State
from tests.support.fakes import Boots, FakeEnvironment, end, record, train, write_records

CLUSTER = """\
version: 1
name: mnist
nodes: {tf1: {}, tf2: {}, tf3: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2, tf3]}}
"""
RATES = "learning_rate=0.1,0.5,1"


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Boots]:
    (tmp_path / "volume").mkdir()
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    for name in ("mnist_async.py", "staleness.py"):
        (tmp_path / "scripts" / name).write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    made = Boots("local", made=FakeEnvironment(tmp_path / "volume"))
    monkeypatch.setattr("lab.service.run.backends", lambda: [made])
    yield made
    for thread in made.made.threads if made.made else ():
        thread.join(30)


def sweep(*arguments: str) -> int:
    return main(["sweep", "async", "--gpus", "none", *arguments])


def value(request: Request, flag: str) -> str:
    """The last argument of the program, which counts."""
    words = [word for word in request.spec.args if word.startswith(f"--{flag}=")]
    return words[-1].partition("=")[2]


def test_every_point_is_run_with_the_same_seeds(
    backend: Boots, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("--over", RATES, "--repeats", "2", "--seed", "5", "--csv", "made.csv") == 0
    assert backend.made is not None
    asked = backend.made.runs()
    assert [(value(each, "learning_rate"), value(each, "seed")) for each in asked] == [
        ("0.1", "5"), ("0.5", "5"), ("1", "5"), ("0.1", "6"), ("0.5", "6"), ("1", "6"),
    ]  # fmt: skip
    assert (backend.booted, backend.made.is_down) == (1, True)
    out, err = capsys.readouterr()
    assert "6/6 learning_rate=1: accuracy 0.75" in err
    assert "0.75 ± 0" in out
    with Path("made.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["run_id"] for row in rows] == [each.run_id for each in asked]
    assert {row["accuracy"] for row in rows} == {"0.75"}
    assert {path.name for path in Path("runs").iterdir()} == {row["run_id"] for row in rows}


def test_each_number_of_workers_has_an_environment_of_its_own(
    backend: Boots, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("--over", "workers=2,1", "--repeats", "2", "--json") == 0
    assert backend.made is not None
    seeds = [int(value(each, "seed")) for each in backend.made.runs()]  # drawn for all
    assert seeds == 2 * [seeds[0], seeds[0] + 1]
    assert [len(each.cluster["worker"]) for each in backend.made.runs()] == [2, 2, 1, 1]
    assert (backend.booted, backend.made.is_down) == (2, True)
    out, err = capsys.readouterr()
    assert [each["values"]["workers"] for each in json.loads(out)["runs"]] == [*"2211"]
    assert err.count("backend local") == 1


def test_an_environment_that_is_up_is_used_and_stays(backend: Boots) -> None:
    from lab.config import load_cluster  # noqa: PLC0415

    assert backend.made is not None
    backend.environment = backend.made
    backend.made.cluster_sha256 = load_cluster(Path("cluster.yaml")).sha256
    assert sweep("--over", RATES, "--repeats", "1") == 0
    assert (backend.booted, backend.made.is_down) == (0, False)
    assert sweep("--over", "workers=1,2", "--repeats", "1") == 2  # not the environment that is up
    assert len(backend.made.runs()) == 3


def fails(volume: Volume, request: Request) -> None:
    for task in request.tasks():
        end(volume, request.run_id, task, State.FAILED, reason="exit code 1", exit_code=1)


@pytest.mark.parametrize(
    ("failing", "runs", "reported"),
    [
        ("0.1", 1, ["the first run failed; the other runs are skipped"]),
        ("0.5", 3, ["2/3 learning_rate=0.5: failed", "1 of 3 runs failed"]),
    ],
)
def test_a_failed_run_is_reported(
    backend: Boots,
    capsys: pytest.CaptureFixture[str],
    failing: str,
    runs: int,
    reported: list[str],
) -> None:
    def one_fails(volume: Volume, request: Request) -> None:
        (fails if value(request, "learning_rate") == failing else train)(volume, request)

    assert backend.made is not None
    backend.made.tasks_do = one_fails
    assert sweep("--over", RATES, "--repeats", "1") == 1
    assert len(backend.made.runs()) == runs
    assert backend.made.is_down
    err = capsys.readouterr().err
    assert [line for line in reported if line not in err] == []


def test_an_interrupt_ends_it_and_shows_finished_runs(
    backend: Boots, capsys: pytest.CaptureFixture[str]
) -> None:
    def stops_at_the_second(volume: Volume, request: Request) -> None:
        if value(request, "learning_rate") == "0.1":
            train(volume, request)
            return
        write_records(volume, request.run_id, "worker-0", [record("worker-0", 0, local_step=1)])
        os.kill(os.getpid(), signal.SIGINT)
        while not volume.cancel(request.run_id).exists():
            pass
        for task in request.tasks():
            end(volume, request.run_id, task, State.CANCELLED)

    assert backend.made is not None
    backend.made.tasks_do = stops_at_the_second
    assert sweep("--over", RATES, "--csv", "made.csv") == 130
    assert backend.made.is_down
    out, err = capsys.readouterr()
    assert "the sweep was interrupted after 1 of 9 runs" in err
    assert "0.1" in out
    assert len(Path("made.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--over", "nonsense"), "NAME=VALUE,VALUE"),
        (("--over", "batch_sise=1,2"), "did you mean 'batch_size'?"),
        (("--over", "batch_size=1,2", "--batch_size", "5"), "--over varies it"),
        (("--over", "batch_size=1,2", "--repeats", "0"), "a whole number from 1 to 1,000"),
        ((), "--over"),
        (
            ("--over", "batch_size=1,2", "--csv", "nowhere/made.csv"),
            "--csv: there is no directory nowhere",
        ),
    ],
)
def test_errors_are_reported_before_anything_starts(
    backend: Boots, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    assert sweep(*arguments) == 2
    assert says in capsys.readouterr().err
    assert backend.booted == 0
    with contextlib.suppress(FileNotFoundError):
        assert not list(Path("runs").iterdir())
