"""Why there is no private Slurm for the tests: one line each."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.task.agent.slurm import _PORTS, _PORTS_OF_A_JOB
from tests.support import engine, slurm


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host on which the private Slurm is requested, with nothing installed; its programs."""
    monkeypatch.setenv("LAB_TEST_SLURM", "1")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine, "system_path", lambda: str(tmp_path))
    monkeypatch.setattr(slurm, "HOMES", tmp_path)
    monkeypatch.setattr(engine, "LOCK", tmp_path / "lock")
    return tmp_path


def put(host: Path, *commands: str) -> None:
    """Install programs that fail, with two lines of output."""
    for name in commands:
        (host / name).write_text("#!/bin/sh\necho 'E: no\n   network' >&2\nexit 100\n")
        (host / name).chmod(0o755)


def reason() -> str:
    with pytest.raises(slurm.NoSlurm) as error, slurm.a_slurm():
        pass
    return str(error.value)


def test_it_is_made_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_TEST_SLURM")
    monkeypatch.delenv("CI", raising=False)
    assert reason() == f"no Slurm; {slurm.HINT}"
    monkeypatch.setenv("CI", "true")
    assert "not installed" in reason()


def test_it_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert reason() == "a private Slurm needs root"


def test_without_apt(host: Path) -> None:
    put(host, "munged")
    names = "slurmctld slurmd slurm-client"
    hint = "this host has no apt-get, so install them by hand"
    assert reason() == f"not installed: {names}; {hint}"


def test_only_root_installs(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(host, "apt-get")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(engine.NoEngine, match="not installed: zsh; install them as root"):
        engine.install("zsh")


def test_packages_that_cannot_be_installed(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(host, "apt-get", "srun", "slurmctld", "slurmd")
    monkeypatch.setenv("PATH", str(host))
    monkeypatch.setattr(engine, "POLICY", host / "policy-rc.d")
    assert reason() == "cannot install munge: apt-get update failed: E: no network"
    assert not (host / "policy-rc.d").exists()


def test_each_has_job_numbers_of_its_own(host: Path) -> None:
    put(host, *slurm.COMMANDS)
    with ExitStack() as held:
        slots = [held.enter_context(slurm.slot()) for _ in range(slurm.SLOTS)]
        assert slots == list(range(slurm.SLOTS))
        assert reason() == "6 private Slurms run on this host; wait for one to end"
    # The ports of two jobs repeat only after this many numbers.
    assert slurm.SLOTS * slurm.JOBS <= _PORTS // _PORTS_OF_A_JOB


def test_no_two_have_one_directory_whatever_the_temporary_one_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with slurm.slot() as first:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "other"))
        (tmp_path / "other").mkdir()
        with slurm.slot() as second:
            assert second != first


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
