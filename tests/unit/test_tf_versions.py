"""Which TensorFlow an experiment has, and where processes find it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import lab
from lab.backends.local import LocalBackend
from lab.task.protocol.experiments import EXPERIMENTS
from lab.tf_versions import CURRENT, IMAGES, INSTALLED_MARKER, TF1
from tests.support.fakes import PLAN


def test_every_experiment_has_an_image() -> None:
    assert {each.tensorflow for each in EXPERIMENTS.values()} <= set(IMAGES)


def test_images_are_named_by_what_is_in_them() -> None:
    names = [image.name(gpus=gpus) for image in IMAGES.values() for gpus in (False, True)]
    assert names == ["lab:cpu", "lab:cuda", "lab:heritage-cpu", "lab:heritage-cuda"]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Put the package in a directory without such an environment."""
    monkeypatch.setattr(lab, "__file__", str(tmp_path / "site/lab/__init__.py"))


@pytest.mark.usefixtures("elsewhere")
def test_an_environment_counts_once_all_of_it_is_installed(tmp_path: Path) -> None:
    backend, plan = LocalBackend(), replace(PLAN, tensorflow="2.15")
    assert backend.missing_image(PLAN, root=tmp_path) is None
    lacks = "there is no .venv-heritage with TensorFlow 2.15; create it with `make heritage`"
    assert backend.missing_image(plan, root=tmp_path) == lacks
    folder = tmp_path / TF1.environment
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to("/usr/bin/python3")
    assert backend.missing_image(plan, root=tmp_path) == lacks
    (folder / INSTALLED_MARKER).touch()
    assert backend.missing_image(plan, root=tmp_path) is None
    # The link itself: by it Python finds the packages installed beside it.
    assert TF1.python(tmp_path) == folder / "bin" / "python"


def test_the_one_beside_the_package_is_for_every_project(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lab, "__file__", str(tmp_path / "checkout/lab/__init__.py"))
    folder = tmp_path / "checkout" / TF1.environment
    folder.mkdir(parents=True)
    (folder / INSTALLED_MARKER).touch()
    project = tmp_path / "project"
    assert TF1.python(project) == folder / "bin" / "python"
    own = project / TF1.environment
    own.mkdir(parents=True)
    (own / INSTALLED_MARKER).touch()
    assert TF1.python(project) == own / "bin" / "python"


def test_the_lab_s_own_python_needs_no_environment() -> None:
    assert not CURRENT.environment
