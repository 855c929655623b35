"""Programs that do harm, in containers: the same tests as on processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import lab
from tests.hostile.test_programs import (  # noqa: F401  (pytest finds them here, too)
    CLUSTER,
    test_files_under_labs_names_are_collected_beside_labs_own,
    test_links_and_pipes_are_named_and_never_followed,
    test_odd_names_are_collected,
    test_pipes_in_place_of_files_stop_no_agent,
    test_records_that_another_task_has_changed_fail_the_run,
    test_records_that_are_no_file_are_named_as_not_collected,
    test_records_that_were_removed_fail_the_run,
    test_removed_working_directory_loses_no_record,
)

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def project(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    assert image
    folder = tmp_path_factory.mktemp("harm")
    (folder / "cluster.yaml").write_text(CLUSTER)
    for name in ("scripts", "data"):
        (folder / name).mkdir()
    lab(folder, "up", "--backend", "compose", "--gpus", "none")
    yield folder
    lab(folder, "down", "--yes", "--discard")
