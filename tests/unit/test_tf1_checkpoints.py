"""The run whose checkpoint a printed program finds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.task.sdk.program import ProgramError
from lab.task.tf1.sessions import check_checkpoint_age


def test_only_a_checkpoint_of_an_earlier_run_is_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "model.ckpt-3299"
    check_checkpoint_age(None, 1000.0)
    check_checkpoint_age(str(checkpoint), 1000.0)  # It was removed meanwhile.
    index = tmp_path / "model.ckpt-3299.index"
    index.touch()
    os.utime(index, (1000.5, 1000.5))
    check_checkpoint_age(str(checkpoint), 1000.0)
    with pytest.raises(
        ProgramError, match=r"holds model\.ckpt-3299, a checkpoint of an earlier run"
    ):
        check_checkpoint_age(str(checkpoint), 1001.0)
