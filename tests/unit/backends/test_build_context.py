"""LAB_WHEELS: packages for an image that the package index does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.backends.build_context import WHEELS, prepare_context
from lab.base.errors import LabError


def test_the_wheels_come_into_the_directory_that_the_engine_receives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, project = tmp_path / "given", tmp_path / "project"
    for folder in (given, project):
        folder.mkdir()
    monkeypatch.delenv("LAB_WHEELS", raising=False)
    assert not (prepare_context(project) / WHEELS).exists()

    monkeypatch.setenv("LAB_WHEELS", str(given))
    with pytest.raises(LabError, match=r"LAB_WHEELS: .*given has no wheel"):
        prepare_context(project)
    (given / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").write_bytes(b"wheel")
    (given / "notes.txt").write_text("not a wheel")
    for _ in range(2):  # again over the first copy
        (copied,) = (prepare_context(project) / WHEELS).iterdir()
        assert copied.name == "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl"
        assert copied.read_bytes() == b"wheel"
