"""The state and the build of a class's image; the engine is made up."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest

from lab.backends.compose.cli import Compose
from lab.backends.compose.render import image_of
from lab.backends.engine.client import Engine
from lab.base.errors import LabError
from lab.base.log import shown_by
from lab.cluster.placement.plan import Plan
from lab.teach.classroom import preparation
from lab.teach.classroom.preparation import DIGEST, SOURCES, ensure_image
from tests.support.commands import ROOT

DOCKERFILE = (ROOT / "Dockerfile.class").read_text(encoding="utf-8")


@dataclass
class Images:
    """The images of an engine: their labels by their names, and what was built."""

    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    base_id: str = "sha256:1"
    with_gpus: list[bool] = field(default_factory=list)
    built: list[dict[str, Any]] = field(default_factory=list)

    def get(self, name: str) -> Any:
        if not name.startswith("lab:") and name not in self.labels:
            raise docker.errors.ImageNotFound("404", explanation=f"No such image: {name}")
        return SimpleNamespace(id=self.base_id, labels=self.labels.get(name))

    def build_image(self, plan: Plan, **_: object) -> str:
        self.with_gpus.append(bool(plan.tasks[0].gpus))
        return image_of(plan)


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> Images:
    found = Images()

    def build(compose: Compose, service: str) -> None:
        built = json.loads(compose.file.read_text())["services"][service]
        found.built.append(built)
        found.labels[built["image"]] = built["build"]["labels"]

    monkeypatch.setattr(preparation, "build_image", found.build_image)
    monkeypatch.setattr(Compose, "build", build)
    monkeypatch.setattr(Engine, "client", lambda _: SimpleNamespace(images=found))
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in SOURCES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            path.mkdir()
            path /= "file"
        path.write_text(name)
    return tmp_path


def ensured(root: Path, **options: bool) -> list[str]:
    lines: list[str] = []
    with shown_by(lines.append):
        ensure_image(Engine(), root=root, **{"gpus": False, **options})
    return lines


@pytest.mark.parametrize(
    ("options", "kind", "with_gpus"),
    [
        ({}, "cpu", [False]),
        ({"gpus": True}, "cuda", [True]),
        ({"cpu_runs": True}, "cpu", [False]),
        ({"gpus": True, "cpu_runs": True}, "cuda", [True, False]),
    ],
)
def test_a_missing_image_is_built_on_the_image_of_the_tasks(
    options: dict[str, bool], kind: str, with_gpus: list[bool], images: Images, project: Path
) -> None:
    (line,) = ensured(project, **options)
    assert "downloads about 230 MB: JupyterLab" in line
    (built,) = images.built
    assert built["image"] == f"lab-class:{kind}"
    assert built["build"]["args"] == {"IMAGE": f"lab:{kind}"}
    assert re.fullmatch("[0-9a-f]{64}", built["build"]["labels"][DIGEST])
    assert images.with_gpus == with_gpus


@pytest.mark.parametrize("name", SOURCES)
def test_a_changed_or_renamed_file_makes_the_image_old(
    images: Images, project: Path, name: str
) -> None:
    ensured(project)
    if (project / name).is_file():
        (project / name).write_text("changed")
    else:
        (project / name / "file").rename(project / name / "other")
    (line,) = ensured(project)
    assert line.startswith("building lab-class:cpu downloads about 230 MB")
    assert len(images.built) == 2


def test_another_image_of_the_tasks_or_a_missing_label_makes_it_old_and_a_cache_does_not(
    images: Images, project: Path
) -> None:
    ensured(project)
    images.base_id = "sha256:3"
    assert len(ensured(project)) == 1
    images.labels["lab-class:cpu"] = {}
    assert len(ensured(project)) == 1
    for cache in ("lab/__pycache__", "notebooks/.ipynb_checkpoints"):
        (project / cache).mkdir()
        (project / cache / "file").touch()
    assert ensured(project) == []


def test_a_missing_source_is_an_error(images: Images, project: Path) -> None:
    shutil.rmtree(project / "notebooks")
    with pytest.raises(LabError, match=r"notebooks is missing in .*; run the command in") as caught:
        ensured(project)
    assert caught.value.exit_code == 1
    assert images.built == []


def test_the_sources_are_what_the_dockerfile_copies() -> None:
    copied = {
        source
        for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE)
        for source in line.split()
    }
    copied = {name.replace("/package*.json", "") for name in copied}
    assert copied == {*SOURCES} - {"Dockerfile.class"}
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line[1:].replace("/package*.json", "") for line in ignore if line.startswith("!")}
    assert copied <= sent
