"""The sites of several versions, and the branch that keeps them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tools.site_versions import add, keep, restore


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of an empty repository."""
    for part in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{part}_NAME", "lab")
        monkeypatch.setenv(f"GIT_{part}_EMAIL", "lab@localhost")
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path / "origin"], check=True)
    subprocess.run(["git", "init", "--quiet", tmp_path / "clone"], check=True)
    remote = ["git", "remote", "add", "origin", tmp_path / "origin"]
    subprocess.run(remote, cwd=tmp_path / "clone", check=True)
    return tmp_path / "clone"


def publish(repository: Path, version: str) -> Path:
    """Build a site of one page, and keep it beside the earlier ones."""
    built, site = repository / "build/docs", repository / "build/site"
    built.mkdir(parents=True, exist_ok=True)
    (built / "page.html").write_text(version)
    last = restore(site, repository)
    add(built, site, version)
    keep(site, repository, last)
    return site


def test_the_branch_keeps_each_version(repository: Path) -> None:
    for version in ("0.9.0", "0.10.0", "0.9.1"):
        site = publish(repository, version)
    listed = json.loads((site / "versions.json").read_text())
    assert [each["title"] for each in listed] == ["0.10.0", "0.9.1"]
    assert "url=0.10/index.html" in (site / "index.html").read_text()
    restored = repository / "restored"
    assert restore(restored, repository)
    pages = {path.parent.name: path.read_text() for path in restored.rglob("page.html")}
    assert pages == {"0.9": "0.9.1", "0.10": "0.10.0"}


def test_a_remote_that_does_not_answer_is_no_missing_branch(repository: Path) -> None:
    assert restore(repository / "site", repository) == ""
    remote = ["git", "remote", "set-url", "origin", "/nowhere"]
    subprocess.run(remote, cwd=repository, check=True)
    with pytest.raises(subprocess.CalledProcessError):
        restore(repository / "site", repository)
