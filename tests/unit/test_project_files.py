"""`replace_files`: files of a project get new content, and nothing outside of it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import InputError
from lab.project import replace_files


@pytest.mark.parametrize("name", ["/etc/evil", "../evil", "scripts/../../evil", "scripts/..", ""])
def test_a_path_that_leaves_the_project_is_refused(tmp_path: Path, name: str) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    source.write_text("new")
    root.mkdir()
    with pytest.raises(InputError, match="is not a path in"):
        replace_files(root, {"scripts/a.py": source, name: source})
    assert list(root.iterdir()) == []


def test_what_was_there_is_kept(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    source.write_text("new")
    (root / "scripts").mkdir(parents=True)
    (root / "scripts/a.py").write_text("mine")
    kept = replace_files(root, {"scripts/a.py": source, "scripts/b.py": source})
    assert (root / "scripts/a.py").read_text() == (root / "scripts/b.py").read_text() == "new"
    assert kept is not None
    assert [path.read_text() for path in kept.rglob("*.py")] == ["mine"]


def test_replaced_files_come_back_if_one_cannot_be_placed(tmp_path: Path) -> None:
    root, sources = tmp_path / "room", {}
    (root / "scripts").mkdir(parents=True)
    (root / "scripts/a").write_text("mine")
    (root / "clusters").symlink_to(tmp_path)
    for name in ("scripts/a", "clusters/b", "new/c"):
        sources[name] = tmp_path / name.replace("/", "-")
    for name in ("scripts/a", "clusters/b"):  # the source of new/c is missing
        sources[name].write_text(name)
    before = sorted(root.rglob("*"))
    with pytest.raises(FileNotFoundError, match="new-c"):
        replace_files(root, sources)
    assert sorted(root.rglob("*")) == before
    assert (root / "clusters").is_symlink()
    assert (root / "scripts/a").read_text() == "mine"
