"""The page on experiments of a project: its file, its program and its package, as it shows them."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hatchling.build import build_wheel

from lab.base.errors import LabError
from lab.base.plugins import plugins
from lab.cluster.experiments import Catalogue, Entry, FlagEntry, outside_experiments
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.records import parse_record
from lab.protocol.volume.states import State
from lab.runner.store.summarize import summary_of
from lab.runner.store.task_progress import TaskProgress
from lab.runner.verdict import check_succeeded
from tests.support import shown
from tests.support.cli import lab
from tests.support.shown import ROOT, assert_shows, fenced, wrong_commands
from tests.support.specs import changed, prepared

PAGE = "docs/how-to/experiments.md"
TEXT = (ROOT / PAGE).read_text("utf-8")
CODE = {each.language: each.text for each in fenced(PAGE)}
CONFIG = "{version: 1, name: bert, nodes: {tf1: {}, tf2: {}}, jobs: {worker: {on: [tf1, tf2]}}}\n"


def written(folder: Path) -> Path:
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts/bert_tiny.py").write_text(CODE["python"])
    (folder / "experiments.yaml").write_text(CODE["yaml"])
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (written(tmp_path / "mine") / "cluster.yaml").write_text(CONFIG)
    return tmp_path / "mine"


def test_the_tables_have_every_key() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert rows == [*Entry.model_fields, *FlagEntry.model_fields]
    assert {*Catalogue.model_fields} == {"version", "experiments"}  # the example has both
    required = [key for key, field in Entry.model_fields.items() if field.is_required()]
    assert "`program`, `summary`, `jobs` and `framework` are required" in TEXT
    assert required == ["program", "summary", "jobs", "framework"]
    assert [key for key, field in FlagEntry.model_fields.items() if field.is_required()] == ["help"]


def test_the_commands_fit(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(shown, "EXPERIMENTS", {**EXPERIMENTS, **outside_experiments(project)})
    assert wrong_commands(TEXT) == []


def test_the_experiment_is_shown(project: Path) -> None:
    assert_shows(PAGE, "bert-tiny  ", lab(project, "experiments", COLUMNS="120").stdout)
    assert (
        "--lr      learning rate (default: 0.0005)"
        in lab(project, "experiments", "bert-tiny").stdout
    )


def test_the_program_reports_what_the_entry_wants(project: Path) -> None:
    command = [sys.executable, "scripts/bert_tiny.py", "--epochs=1"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    step, result = done.stdout.splitlines()
    assert step == "step 100 loss 0.0200"
    found = parse_record(result)
    assert (found["kind"], found["name"], found["value"]) == ("result", "f1", 0.9)


def test_what_is_wrong_is_refused(project: Path) -> None:
    lines = ["--epoch 1", "--epochs many", None, "--framework jax"]
    errors = [
        lab(project, "run", *(["bert-tiny", *line.split()] if line else ["bert-tony"])).stderr
        for line in lines
    ]
    path = project / "experiments.yaml"
    path.write_text(CODE["yaml"].replace("    jobs:", "    sumary: small\n    jobs:"))
    errors.append(lab(project, "experiments").stderr)
    run = prepared(project)
    info = changed(run.read(), results=("f1",), state=State.SUCCEEDED)
    progress = {task: TaskProgress(task) for task in info.task_names()}
    with pytest.raises(LabError) as caught:
        check_succeeded(run, summary_of(info, {}, progress))
    missing = str(caught.value).replace(f"{project}/", "")
    assert_shows(PAGE, "error: no option", "".join([*errors, f"error: {missing}"]))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Builds the package of the page, under a name, and installs it."""
    site = tmp_path / "site-packages"
    monkeypatch.syspath_prepend(str(site))

    def make(name: str) -> None:
        folder = tmp_path / name
        module = name.replace("-", "_")
        (written(folder / module) / "__init__.py").write_text("raise SystemExit('imported')\n")
        text = CODE["toml"].replace("bert-course", name).replace("bert_course", module)
        (folder / "pyproject.toml").write_text(text)
        with monkeypatch.context() as inside:
            inside.chdir(folder)
            wheel = build_wheel(str(tmp_path))
        zipfile.ZipFile(tmp_path / wheel).extractall(site)
        importlib.invalidate_caches()
        plugins.cache_clear()

    yield make
    plugins.cache_clear()


def test_the_package_has_its_experiments(
    install: Callable[[str], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install("bert-course")
    install("rival")
    for _ in range(2):  # the second one does not warn again
        found = outside_experiments(tmp_path)["bert-tiny"]
    assert len(caplog.messages) == 1
    assert found.origin == "bert-course 1.0"
    assert Path(found.program).read_text() == CODE["python"]
    assert_shows(PAGE, "plug-in 'rival'", "\n".join(caplog.messages))
    plugins.cache_clear()
    monkeypatch.setenv("LAB_PLUGINS", "none")
    assert outside_experiments(tmp_path) == {}
