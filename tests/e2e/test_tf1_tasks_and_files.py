"""Listings with a program for each task, and one that reads a data file, on real processes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.commands import ROOT, lab
from tests.support.shown import assert_shows

pytestmark = pytest.mark.tensorflow

PROGRAMS = ROOT / "tests" / "tf1_programs"
ON_ONE_NODE = """\
version: 1
name: two-programs
nodes: {{tf1: {{}}}}
jobs: {{{jobs}}}
"""


PAGE = "docs/how-to/printed-programs.md"


def listing(
    project: Path, word: str, cluster: Path, *, code: int = 0, backend: str = "local"
) -> tuple[Path, str]:
    """Run `lab run --listing`; return the run directory and the output."""
    runs = project / f"runs-{code}"
    where = ("--cluster", str(cluster), "--backend", backend, "--gpus", "none")
    _, err = lab(project, "run", "--listing", word, *where, "--runs-dir", str(runs), code=code)
    (path,) = runs.iterdir()
    return path, err


def config(project: Path, jobs: str) -> Path:
    for name in ("scripts", "data"):
        (project / name).mkdir()
    path = project / "cluster.yaml"
    path.write_text(ON_ONE_NODE.format(jobs=jobs))
    return path


def of(path: Path) -> dict[str, Any]:
    return json.loads((path / "run.json").read_text())


@pytest.mark.parametrize("backend", ["local", pytest.param("compose", marks=pytest.mark.engine)])
def test_two_workers_in_two_files(
    request: pytest.FixtureRequest, tmp_path: Path, backend: str
) -> None:
    if backend == "compose":
        request.getfixturevalue("image")
    cluster = config(tmp_path, "worker: {on: [tf1, tf1]}, ps: {on: [tf1]}")
    files = {"worker-0": "adder_one", "worker-1": "adder_ten"}
    word = ",".join(f"{task}={PROGRAMS / name}.py" for task, name in files.items())
    path, _ = listing(tmp_path, word, cluster, backend=backend)
    # The sum has all ones and all tens: each task has run its own program.
    assert "sum 1100" in (path / "logs/worker-0.log").read_text().splitlines()
    assert "added 100 tens" in (path / "logs/worker-1.log").read_text().splitlines()
    info = of(path)
    assert info["spec"]["program"] == "worker-0=adder_one.py,worker-1=adder_ten.py"
    # The second has its index from the flag that it declares.
    assert info["spec"]["programs"]["worker-1"] == "adder_ten.py"
    assert (path / "program/adder_parts.py").is_file()
    # No program runs on the service without one.
    assert not (path / "logs/ps-0.log").exists()
    out, _ = lab(tmp_path, "runs", "--runs-dir", str(path.parent))
    assert "adder_one-adder_ten" in out.replace("\n", "")


def test_a_server_and_a_client_in_two_files(tmp_path: Path) -> None:
    # Beside a client, all other jobs only serve: this server is ended when the client has ended.
    cluster = config(tmp_path, "worker: {on: [tf1]}, client: {on: [tf1]}")
    files = {"worker-0": "shelf_server", "client-0": "shelf_client"}
    word = ",".join(f"{task}={PROGRAMS / name}.py" for task, name in files.items())
    path, _ = listing(tmp_path, word, cluster)
    assert "serves at grpc://localhost:2222" in (path / "logs/worker-0.log").read_text()
    log = (path / "logs/client-0.log").read_text()
    assert "kept 8.0 16.0 on /job:shelf/task:0" in log


def test_towers_that_read_a_file_beside_them_and_are_written_in_python_2(tmp_path: Path) -> None:
    name = "towers_of_a_file"
    program = Path(shutil.copy(PROGRAMS / f"{name}.py", tmp_path))
    cluster = ROOT / "clusters/one-host.yaml"
    _, err = listing(tmp_path, program.name, cluster, code=1)
    assert (
        "MissingFileError: output.tfrecords is missing; in the directory of"
        " towers_of_a_file.py, run `lab data tfrecords output.tfrecords`"
    ) in err.splitlines()[-1]

    out, made = lab(tmp_path, "data", "tfrecords", "output.tfrecords")
    failed = (err + out + made).replace(name, "towers").replace(f"{tmp_path}/runs-1", "runs")
    assert_shows(PAGE, "$ lab run --listing towers.py --cluster clusters/one-host.yaml\n…", failed)
    new = program.read_text()
    old = new.replace("in range(", "in xrange(").replace("print(line", "print line")
    old = old.replace("took / len(DEVICES)))", "took / len(DEVICES)), 'by', len(DEVICES)")
    program.write_text(old)
    path, err = listing(tmp_path, program.name, cluster)
    assert f"{name}.py: converted from Python 2" in err
    out, _ = lab(tmp_path, "show", path.name, "--runs-dir", str(path.parent))
    assert_shows(
        PAGE,
        "$ lab run --listing towers.py --cluster clusters/one-host.yaml\nbackend",
        (err + out).replace(name, "towers").replace(str(path.parent), "runs"),
        figures=False,
    )
    assert (path / f"original/{name}.py").read_text() == old
    assert "in range(" in (path / f"program/{name}.py").read_text()

    lines = (path / "logs/worker-0.log").read_text().splitlines()
    printed = [line for line in lines if "examples/sec" in line]
    losses = [float(line.partition("loss = ")[2].split()[0]) for line in printed]
    assert [line.endswith(" by 3") for line in printed] == [True] * 6
    # Softmax regression from zeros begins at ln 10 = 2.3.
    assert losses[-1] < losses[0] < 2.3
    board = EventAccumulator(str(path / "files/histograms"), {"histograms": 0}).Reload()
    steps = [event.step for event in board.Histograms("softmax/matrix/gradient")]
    assert steps == [10, 20, 30, 40, 50, 60]
    # The data file was copied with the run, unchanged.
    data = "output.tfrecords"
    assert (path / "files" / data).read_bytes() == (tmp_path / data).read_bytes()
