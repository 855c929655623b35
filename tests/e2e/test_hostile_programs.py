"""Programs that do harm, in containers: the same tests as on processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import lab
from tests.support.harms import HARMS, found, make_project

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def project(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    assert image
    folder = tmp_path_factory.mktemp("harm")
    make_project(folder, "compose")
    yield folder
    lab(folder, "down", "--yes", "--discard")


@pytest.mark.parametrize("harm", [*HARMS, "litter"])
def test_a_harm_is_named_and_nothing_else_is_lost(project: Path, harm: str) -> None:
    assert found(project, harm) == HARMS[harm]
