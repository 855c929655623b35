"""`lab sweep`: its runs one after the other, its output, and its leftovers."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path

import pytest

from lab.cli import main
from lab.cluster.config import load_cluster
from lab.protocol.volume import Request, Volume
from lab.protocol.volume.states import State
from tests.support.cli import Host
from tests.support.fakes import (
    FakeBackend,
    FakeEnvironment,
    end_all,
    fail,
    record,
    train,
    write_records,
)

RATES = "learning_rate=0.1,0.5,1"


@pytest.fixture
def environment(host: Host) -> FakeEnvironment:
    return host.environment


@pytest.fixture(autouse=True)
def backend(host: Host) -> FakeBackend:
    """It boots the environment of the project for each sweep."""
    (host.folder / "scripts/staleness.py").write_text("")
    host.backend.environment, host.backend.made = None, host.environment
    return host.backend


def sweep(*arguments: str) -> int:
    return main(["sweep", "async", "--gpus", "none", *arguments])


def value(request: Request, flag: str) -> str:
    words = [word for word in request.spec.args if word.startswith(f"--{flag}=")]
    return words[-1].partition("=")[2]


def test_every_point_is_run_with_the_same_seeds(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    assert sweep("--over", RATES, "--repeats", "2", "--seed", "5", "--csv", "made.csv") == 0
    asked = environment.runs()
    assert [(value(each, "learning_rate"), value(each, "seed")) for each in asked] == [
        ("0.1", "5"), ("0.5", "5"), ("1", "5"), ("0.1", "6"), ("0.5", "6"), ("1", "6"),
    ]  # fmt: skip
    assert (backend.booted, environment.is_down) == (1, True)
    out, err = capfd.readouterr()
    assert "6/6 learning_rate=1: accuracy 0.75" in err
    assert "0.75 ± 0" in out
    with Path("made.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["run_id"] for row in rows] == [each.run_id for each in asked]
    assert {row["accuracy"] for row in rows} == {"0.75"}
    assert {path.name for path in Path("runs").iterdir()} == {row["run_id"] for row in rows}


def test_each_number_of_workers_has_an_environment_of_its_own(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    assert sweep("--over", "workers=2,1", "--repeats", "2", "--json") == 0
    seeds = [int(value(each, "seed")) for each in environment.runs()]  # drawn for all
    assert seeds == 2 * [seeds[0], seeds[0] + 1]
    assert [len(each.cluster["worker"]) for each in environment.runs()] == [2, 2, 1, 1]
    assert (backend.booted, environment.is_down) == (2, True)
    out, err = capfd.readouterr()
    assert [each["values"]["workers"] for each in json.loads(out)["runs"]] == [*"2211"]
    assert err.count("backend local") == 1


def test_an_environment_that_is_up_is_used_and_stays(
    backend: FakeBackend, environment: FakeEnvironment
) -> None:
    backend.environment = environment
    environment.cluster_sha256 = load_cluster(Path("cluster.yaml")).sha256
    assert sweep("--over", RATES, "--repeats", "1") == 0
    assert (backend.booted, environment.is_down) == (0, False)
    assert sweep("--over", "workers=1,2", "--repeats", "1") == 2  # not the environment that is up
    assert len(environment.runs()) == 3


@pytest.mark.parametrize(
    ("failing", "runs", "reported"),
    [
        ("0.1", 1, ["the first run failed; the other runs are skipped"]),
        ("0.5", 3, ["2/3 learning_rate=0.5: failed", "1 of 3 runs failed"]),
    ],
)
def test_a_failed_run_is_reported(
    environment: FakeEnvironment,
    capfd: pytest.CaptureFixture[str],
    failing: str,
    runs: int,
    reported: list[str],
) -> None:
    def one_fails(volume: Volume, request: Request) -> None:
        (fail if value(request, "learning_rate") == failing else train)(volume, request)

    environment.tasks_do = one_fails
    assert sweep("--over", RATES, "--repeats", "1") == 1
    assert len(environment.runs()) == runs
    assert environment.is_down
    err = capfd.readouterr().err
    assert [line for line in reported if line not in err] == []


def test_an_interrupt_ends_it_and_shows_finished_runs(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    def stops_at_the_second(volume: Volume, request: Request) -> None:
        if value(request, "learning_rate") == "0.1":
            train(volume, request)
            return
        write_records(volume, request.run_id, "worker-0", [record("worker-0", 0, local_step=1)])
        os.kill(os.getpid(), signal.SIGINT)
        while not volume.cancel(request.run_id).exists():
            pass
        end_all(volume, request, State.CANCELLED)

    environment.tasks_do = stops_at_the_second
    assert sweep("--over", RATES, "--csv", "made.csv") == 130
    assert environment.is_down
    out, err = capfd.readouterr()
    assert "the sweep was interrupted after 1 of 9 runs" in err
    assert "0.1" in out
    assert len(Path("made.csv").read_text().splitlines()) == 2
