"""Which files lab uses in a directory without a project, and how it is installed with an extra."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lab.base import shipped
from lab.cluster import project
from tests.support.cli import ROOT, lab, refused

HINT = "is missing: using the config and programs that come with lab; `"


def test_a_directory_without_a_project_uses_the_shipped_config(tmp_path: Path) -> None:
    done = lab(tmp_path, "validate")
    assert done.stderr.startswith(f"cluster.yaml {HINT}")
    assert f"{ROOT}/cluster.yaml: valid: mnist" in done.stderr


def test_a_config_and_its_programs_come_from_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert project.find_root(project.cluster_path()) == ROOT
    assert project.cluster_path("clusters/book.yaml") == ROOT / "clusters/book.yaml"
    (tmp_path / "cluster.yaml").write_text("")
    assert project.find_root(project.cluster_path()) == ROOT  # it has no programs of its own
    (tmp_path / "scripts").mkdir()
    assert project.find_root(project.cluster_path()) == tmp_path
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    assert project.cluster_path() == tmp_path / "cluster.yaml"
    assert project.cluster_path("none.yaml") == Path("none.yaml")


def test_a_rendered_file_is_in_a_project(tmp_path: Path) -> None:
    error = refused(lab(tmp_path, "render"))
    assert f"no cluster.yaml in {tmp_path}; write a project with `" in error
    assert "init`" in error


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("uv-receipt.toml", "uv tool install WHAT"),
        ("pipx_metadata.json", "pipx install --force WHAT"),
        ("", f"{sys.executable} -m pip install WHAT"),
    ],
)
def test_the_command_for_an_extra_fits_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, command: str
) -> None:
    monkeypatch.setattr(shipped, "CLONE", None)
    monkeypatch.setattr(shipped, "_source", str)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    if file:
        (tmp_path / file).write_text("")
    wanted = command.replace("WHAT", "'gpulab[class]'")
    assert shipped.install_command("class") == wanted
    monkeypatch.setattr(shipped, "_source", lambda: "file:///a.whl")
    wanted = command.replace("WHAT", "'gpulab[class] @ file:///a.whl'")
    assert shipped.install_command("class") == wanted


def test_a_clone_is_not_installed_into_the_python_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shipped, "CLONE", Path("/my clone"))
    assert "-m pip install" in shipped.install_command()
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    wanted = "make -C '/my clone' install && . '/my clone'/.venv/bin/activate"
    assert shipped.install_command() == wanted


def test_the_command_of_uvx_runs_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "CLONE", None)
    monkeypatch.setattr(shipped, "_source", str)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "archive-v0/x1"))
    assert shipped.install_command("report") == "uvx --from 'gpulab[report]' lab"
