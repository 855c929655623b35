"""The start of a seat: its files, and what it starts."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.classroom import seat
from tests.support.commands import ROOT

WAIT = seat.wait_until_isolated


def filled(folder: Path, **variables: str) -> set[str]:
    """The files of a student after the start of the seat, relative to the home directory."""
    seat.fill(folder, variables, ROOT)
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_student_gets_a_project_with_all_notebooks(tmp_path: Path) -> None:
    found = filled(tmp_path)
    notebooks = {str(path.relative_to(ROOT)) for path in ROOT.glob("notebooks/*.ipynb")}
    assert len(notebooks) > 5
    assert {*notebooks, "cluster.yaml", "notebooks/common.py", "scripts/mnist_async.py"} <= found
    assert "notebooks/00_tour.py" not in found  # the source for developers
    assert not any("__pycache__" in name for name in found)
    assert (tmp_path / "cluster.yaml").read_bytes() == (ROOT / "cluster.yaml").read_bytes()


def test_the_files_that_notebooks_read_are_there(tmp_path: Path) -> None:
    filled(tmp_path)
    assert (tmp_path / "benchmarks/scaling.json").is_file()
    assert (tmp_path / "docs/evidence/staleness.csv").is_file()
    assert (tmp_path / "notebooks/samples/index.json").is_file()


def test_the_class_chooses_the_lessons_and_the_config(tmp_path: Path) -> None:
    found = filled(tmp_path, LAB_LESSONS="async,how_many", LAB_CLUSTER_CONFIG="name: ada\n")
    lessons = {name for name in found if name.endswith(".ipynb")}
    assert lessons == {"notebooks/01_async.ipynb", "notebooks/04_how_many.ipynb"}
    assert "notebooks/common.py" in found
    assert (tmp_path / "cluster.yaml").read_text() == "name: ada\n"


def test_a_later_start_keeps_the_student_s_work(tmp_path: Path) -> None:
    filled(tmp_path, LAB_LESSONS="async")
    notebook = tmp_path / "notebooks/01_async.ipynb"
    notebook.write_text("mine")
    (tmp_path / "cluster.yaml").write_text("mine, too")
    (tmp_path / "scripts/hello.py").unlink()
    (tmp_path / "scripts/linear.py").unlink()
    (tmp_path / "scripts/linear.py").symlink_to("/nowhere")
    filled(tmp_path, LAB_LESSONS="async", LAB_CLUSTER_CONFIG="name: ada\n")
    assert notebook.read_text() == "mine"
    assert (tmp_path / "cluster.yaml").read_text() == "mine, too"
    assert (tmp_path / "scripts/hello.py").is_file()  # a deleted file is there again
    assert (tmp_path / "scripts/linear.py").readlink() == Path("/nowhere")


HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
SUBNET = "eth0\t1000590A\t00000000\t0001\t0\t0\t0\tF0FFFFFF\t0\t0\t0\n"
REJECTED = "*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n"


def test_a_seat_waits_until_the_host_is_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    routes, waits = tmp_path / "route", []
    routes.write_text(HEAD + SUBNET)

    def block(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            routes.write_text(HEAD + REJECTED + SUBNET)

    monkeypatch.setattr(seat, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=block))
    seat.wait_until_isolated(routes)
    assert len(waits) == 3


def test_a_seat_that_is_not_blocked_does_not_start(
    steps: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    routes = tmp_path / "route"
    routes.write_text(HEAD + SUBNET)
    now = itertools.count(0.0, 7.0)
    monkeypatch.setattr(
        seat, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=lambda seconds: None)
    )
    monkeypatch.setattr(seat, "wait_until_isolated", lambda: WAIT(routes))
    with pytest.raises(SystemExit) as caught:
        seat.main([])
    assert caught.value.code == (
        "error: the host is not blocked after 60 s; read JupyterHub's log, hub.log"
    )
    assert steps == []  # neither files nor a server


@pytest.mark.parametrize("text", ["", HEAD])
def test_a_seat_without_a_network_needs_no_block(tmp_path: Path, text: str) -> None:
    routes = tmp_path / "route"
    routes.write_text(text)
    seat.wait_until_isolated(routes, wait_s=0)


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What `main` does, in order. Nothing is started."""
    done: list[object] = []

    def fill(folder: Path, variables: Mapping[str, str]) -> None:
        assert folder == tmp_path
        assert variables is os.environ
        done.append("fill")

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(seat, "wait_until_isolated", lambda: done.append("isolated"))
    monkeypatch.setattr(seat, "fill", fill)
    monkeypatch.setattr(os, "chdir", done.append)
    monkeypatch.setattr(os, "execv", lambda path, words: done.append((Path(path).name, words[1:])))
    return done


def test_the_server_starts_last(steps: list[object], tmp_path: Path) -> None:
    seat.main(["--debug"])
    assert steps == ["isolated", "fill", tmp_path, ("jupyterhub-singleuser", ["--debug"])]


def test_the_server_starts_on_a_full_disk(
    steps: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(folder: Path, variables: Mapping[str, str]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "a\x1b[2Jb"))

    monkeypatch.setattr(seat, "fill", full)
    seat.main([])
    assert steps[-1] == ("jupyterhub-singleuser", [])
    line = f"lab: the home directory is not complete: No space left on device: {tmp_path}/a"
    printed = capsys.readouterr().err
    assert printed.startswith(line)
    assert "\x1b" not in printed
    assert printed.count("\n") == 1
