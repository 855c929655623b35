"""Private Slurms for the tests do not meet, and leave nothing."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.task.agent.slurm import _PORTS, _PORTS_OF_A_JOB
from tests.support import slurm


def test_each_has_job_numbers_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "HOMES", tmp_path)
    with ExitStack() as held:
        slots = [held.enter_context(slurm.slot()) for _ in range(slurm.SLOTS)]
        assert slots == list(range(slurm.SLOTS))
        with pytest.raises(slurm.NoSlurm, match="6 private Slurms run on this host"):
            held.enter_context(slurm.slot())
    # The ports of two jobs repeat only after this many numbers.
    assert slurm.SLOTS * slurm.JOBS <= _PORTS // _PORTS_OF_A_JOB


def test_what_killed_tests_have_left_is_removed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "spool").mkdir(parents=True)
    environ = {**os.environ, "SLURM_CONF": f"{home}/slurm.conf"}
    with subprocess.Popen(["sleep", "600"], env=environ) as left:
        try:
            slurm.remove(home)
            assert left.wait(timeout=0) == -signal.SIGKILL
        finally:
            left.kill()
    assert not home.exists()
