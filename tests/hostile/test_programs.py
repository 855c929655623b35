"""Programs that do harm: nothing of any run is lost, and every harm is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import lab
from tests.support.harms import CLUSTER, HARM, HARMS, found, make_project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("harm")
    make_project(folder, "local")
    yield folder
    lab(folder, "down", "--yes", "--discard")


@pytest.mark.parametrize("harm", [*HARMS, "litter"])  # agents still work after "confuse"
def test_a_harm_is_named_and_nothing_else_is_lost(project: Path, harm: str) -> None:
    assert found(project, harm) == HARMS[harm]


def test_a_remaining_volume_is_listed_and_blocks_nothing(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("harm", "stays"))
    (tmp_path / "scripts").mkdir()
    local = ("--backend", "local", "--gpus", "none")
    out, err = lab(tmp_path, "run", str(HARM), *local, "--json", "--", "collide", code=1)
    summary = json.loads(out.splitlines()[-1])
    left = {"path": "report.html", "reason": "the name is reserved for lab", "kept": True}
    assert (summary["state"], summary["left"]) == ("succeeded", [left])
    assert "files that were not collected: 1" in err.splitlines()[-1]
    lab(tmp_path, "run", str(HARM), *local, "--", "litter")
    (listed,) = json.loads(lab(tmp_path, "ps", "--json")[0])
    assert (listed["name"], listed["alive"], listed["runs"]) == ("stays", 0, 2)
    _, err = lab(tmp_path, "down", "stays", "--yes")
    assert "the run volume of 'stays' is kept" in err
    lab(tmp_path, "down", "stays", "--discard", "--yes")
    assert lab(tmp_path, "ps", "--json")[0] == "[]\n"
