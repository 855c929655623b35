"""A day with an environment that stays up, on each backend.

Own programs, edits, a killed client, another one that follows. The programs here import no
TensorFlow, so that it is quick.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import PATIENCE_S, wait_for
from tests.support.commands import command, end, environ, lab, start
from tests.support.kube import a_cluster
from tests.support.terminals import CTRL_C, terminal
from tests.support.wheels import wheel

NAME = "lab-e2e-daily"
CLUSTER = f"""\
version: 1
name: {NAME}
nodes: {{tf1: {{}}, tf2: {{}}}}
jobs: {{ps: {{on: [tf1]}}, worker: {{on: [tf2, tf2]}}}}
"""

GREETS = """\
import argparse, json, os, signal
import greeting
from words.kind import KIND

parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.add_argument("--task_id", type=int)
parser.add_argument("--ps")
parser.add_argument("--shout", action="store_true")
flags = parser.parse_args()
print(greeting.TEXT, KIND, flags.shout, json.loads(os.environ["TF_CONFIG"])["task"], flags.ps)
if flags.job_name == "ps":
    signal.pause()
for epoch in range(3):
    print("worker=%d,epoch=%d,global_step=%d, local_step=%d, loss = %f" % (
        flags.task_id, epoch, 200 * epoch + 200, 100 * epoch + 100, 1 / (epoch + 1)))
print("worker=%d, final accuracy = 0.8894000053405762" % flags.task_id)
"""

WORKERS = ("worker-0", "worker-1")
COUNTS = """\
import os, signal, time

if os.environ["LAB_TASK"] == "ps-0":
    signal.pause()
for step in range(LINES):
    while step == LINES // 2 and not os.path.exists(os.environ["LAB_DATA"] + "/go-on"):
        time.sleep(0.02)
    print(f"After  {step + 1} training steps (  {2 * step + 2} global steps), "
          "loss on training batch is  0.388676.  (  0.002 sec/batch)")
    print("line", step)
    time.sleep(0.02)
"""

# It names TensorFlow, so that it counts as a training, and does not import it.
TALKS = """\
import socket, sys, time
if not sys.argv:
    import tensorflow

job, server, mode = sys.argv[1:]
host, port = server.split(":")
if job == "ps":
    listener = socket.create_server((host, int(port)))
    connections = []
    while True:
        connections.append(listener.accept())
while mode == "together":
    try:
        connection = socket.create_connection((host, int(port)))
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
for step in range(30):
    print(f"step {step + 1} loss 0.5")
    time.sleep(0.1)
"""


def summary_of(out: str) -> dict[str, Any]:
    return json.loads(out.splitlines()[-1])


# With names for their nodes; the fake Kubernetes has no DNS.
WITH_NAMES = [
    "local",
    pytest.param("compose", marks=pytest.mark.engine),
    pytest.param("slurm", marks=pytest.mark.slurm),
]


@pytest.fixture(
    scope="module",
    params=[*WITH_NAMES, pytest.param("kubernetes", marks=pytest.mark.kubernetes)],
)
def project(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """An environment that is up for all tests of this module."""
    if request.param == "compose":
        request.getfixturevalue("image")
    if request.param == "slurm":
        request.getfixturevalue("slurm")
    folder = tmp_path_factory.mktemp("daily")
    for name in ("scripts", "data"):
        (folder / name).mkdir()
    (folder / "cluster.yaml").write_text(CLUSTER)
    with ExitStack() as stack:
        own = []
        if request.param == "kubernetes":
            cluster = stack.enter_context(a_cluster(tmp_path_factory.mktemp("cluster") / "k"))
            cluster.data = folder / "data"
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("KUBECONFIG", str(cluster.folder / "config"))
            own = ["-o", "flavour=plain"]
        lab(folder, "up", "--backend", request.param, "--gpus", "none", *own)
        yield folder
        lab(folder, "down", "--yes", "--discard")


def write(project: Path, name: str, text: str) -> str:
    path = project / "mine" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def run_dirs(project: Path, name: str) -> list[Path]:
    return sorted((project / "runs").glob(f"*-{name}-*"), key=lambda path: path.stat().st_mtime)


def test_own_program(project: Path) -> None:
    write(project, "words/__init__.py", "")
    write(project, "words/kind.py", "KIND = 'friend'\n")
    write(project, "greeting.py", "TEXT = 'good morning'\n")
    write(project, "unrelated.py", "def (")
    path = write(project, "greets.py", GREETS)
    out, err = lab(project, "run", path, "--json", "--", "--shout")
    summary = summary_of(out)
    assert (summary["state"], summary["global_step"]) == ("succeeded", 600)
    workers = [task for task in summary["tasks"] if task["job_name"] == "worker"]
    assert [(task["epoch"], task["local_step"], task["loss"]) for task in workers] == [
        (2, 300, pytest.approx(0.333333))  # the last quarter of three records
    ] * 2
    assert [task["accuracy"] for task in workers] == [0.8894000053405762] * 2
    assert summary["updates_conserved"] is None
    (run_dir,) = run_dirs(project, "greets")
    log = (run_dir / "logs/worker-1.log").read_text()
    ps = json.loads((run_dir / "run.json").read_text())["cluster"]["ps"][0]
    assert log.startswith(
        f"good morning friend True {{'type': 'worker', 'index': 1}} {ps}\nworker=1,epoch=0,"
    )
    copied = {path.relative_to(run_dir).as_posix() for path in (run_dir / "program").rglob("*.py")}
    assert copied >= {"program/greets.py", "program/greeting.py", "program/words/kind.py"}
    assert not list((run_dir / "program").rglob("__pycache__"))
    assert "worker-1: epoch 3" in err


def test_a_run_brings_the_packages_of_its_program(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wheel(tmp_path, "evening", "1.5", "from phrases import TEXT\n", needs="phrases>=2")
    wheel(tmp_path, "phrases", "2.0", "TEXT = 'good evening'\n")
    wheel(tmp_path, "colours", "1.0", "RED = 'red'\n")
    source = "import os, colours, evening\nif os.environ['LAB_TASK'] != 'ps-0':\n"
    source += "    print(evening.TEXT, colours.RED)\n"
    path = write(project, "brings.py", source)
    (project / "packages.yaml").write_text(CLUSTER + "packages: [colours]\n")
    lab(project, "run", path, "--with", "evening", "--cluster", "packages.yaml")
    (run_dir,) = run_dirs(project, "brings")
    assert (run_dir / "logs/worker-1.log").read_text() == "good evening red\n"
    packages = json.loads((run_dir / "run.json").read_text())["spec"]["packages"]
    pins = [package.partition(" --hash=sha256:")[0] for package in packages]
    assert pins == ["colours==1.0", "evening==1.5", "phrases==2.0"]
    assert not (run_dir / "packages").exists()


def test_an_edited_program_takes_effect_in_the_next_run(project: Path) -> None:
    for name in ("first", "second"):
        text = f"import os\nprint('the {{}} edition'.format('{name}'))\n"
        # Replaced, as an editor does it: another file under the same name.
        (project / "scripts/new").write_text(text)
        (project / "scripts/new").replace(project / "scripts/mnist_async.py")
        lab(project, "run", "async")
        *_, run_dir = run_dirs(project, "async")
        assert (run_dir / "logs/worker-0.log").read_text() == f"the {name} edition\n"


def counted(run_dir: Path, task: str) -> tuple[list[int], list[int]]:
    """The numbers of the lines in a task's log, and the local steps of its records."""
    log = (run_dir / f"logs/{task}.log").read_text().splitlines()
    records = (run_dir / f"tasks/{task}.jsonl").read_text().splitlines()
    return (
        [int(line.split()[1]) for line in log if line.startswith("line ")],
        [json.loads(line)["local_step"] for line in records],
    )


def have_come(run_dir: Path) -> bool:
    files = [
        run_dir / name for task in WORKERS for name in (f"logs/{task}.log", f"tasks/{task}.jsonl")
    ]
    return all(file.is_file() and "\n" in file.read_text() for file in files)


def test_another_client_follows_after_a_kill(project: Path) -> None:
    path = write(project, "takenover.py", COUNTS.replace("LINES", "250"))
    helper = start(project, "run", path)
    wait_for(lambda: run_dirs(project, "takenover"), "a run", PATIENCE_S)
    (run_dir,) = run_dirs(project, "takenover")
    wait_for(lambda: have_come(run_dir), "a line of each", PATIENCE_S)
    helper.kill()
    helper.communicate(timeout=PATIENCE_S)
    brought = len(counted(run_dir, "worker-0")[0])
    (project / "data/go-on").touch()
    out, err = lab(project, "attach", run_dir.name, "--json")
    assert summary_of(out)["state"] == "succeeded"
    assert "training" in err
    assert brought < 250
    for _ in range(2):
        for task in WORKERS:
            assert counted(run_dir, task) == (list(range(250)), list(range(1, 251)))
        # A second collection collects nothing twice.
        lab(project, "attach", run_dir.name)
    assert summary_of(lab(project, "attach", run_dir.name, "--json")[0])["state"] == "succeeded"


def test_a_run_is_detached_attached_shown_and_cancelled(project: Path) -> None:
    path = write(project, "left.py", COUNTS.replace("LINES", "100_000"))
    run_id = lab(project, "run", path, "--detach")[0].strip()
    with terminal(command("attach", run_id), cwd=project, env=environ(project)) as watched:
        watched.until(r"worker-1.*training", PATIENCE_S)
        watched.type(CTRL_C)
        assert watched.end(PATIENCE_S) == 130
        assert "which keeps running" in watched.said
    follower = start(project, "attach", run_id)
    records = [project / "runs" / run_id / f"tasks/{task}.jsonl" for task in WORKERS]
    wait_for(lambda: all(each.exists() for each in records), "a record of each", PATIENCE_S)
    shown = start(project, "logs", "--follow", "--task", "worker-1", "--since", "0s")
    lines = [shown.stdout.readline() for _ in range(50)]
    shown.send_signal(signal.SIGINT)
    shown.communicate(timeout=PATIENCE_S)
    numbers = [int(line.split()[-1]) for line in lines if line.startswith("worker-1  | line ")]
    assert numbers[0] > 0
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    states = json.loads(lab(project, "ps", NAME, "--json")[0])
    assert {row["state"] for row in states if row["task"] != "ps-0"} == {"training"}
    lab(project, "cancel", run_id)
    _, err = end(follower, 1)
    assert "cancelled (cancelled by `lab cancel`)" in err
    assert lab(project, "cancel", run_id, code=2)[1].startswith(
        f"error: run {run_id} has already ended"
    )
    lab(project, "attach", run_id, code=1)
    assert "worker-1  | line 0" in lab(project, "logs", "--task", "worker-1")[0].splitlines()


@pytest.mark.parametrize("project", WITH_NAMES, indirect=True)
def test_a_run_whose_tasks_never_talk_has_failed(project: Path) -> None:
    path = write(project, "talks.py", TALKS)
    arguments = ("run", path, "--json", "--", "{job}", "{ps_hosts}")
    out, _ = lab(project, *arguments, "together")
    assert summary_of(out)["state"] == "succeeded"
    out, err = lab(project, *arguments, "alone", code=1)
    assert summary_of(out)["state"] == "failed"
    assert "(the tasks never exchanged data: each trained alone)" in err.splitlines()[-1]
    config = project / "cluster.yaml"
    config.write_text(CLUSTER + "needs: nothing\n")
    assert summary_of(lab(project, *arguments, "alone")[0])["state"] == "succeeded"
    config.write_text(CLUSTER)
