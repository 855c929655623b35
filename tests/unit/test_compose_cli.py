"""A child of a command ends with it, also after more interrupts; changes that compose finds."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.compose import cli
from lab.backends.compose.cli import child_process, compose_file, lines_of
from lab.backends.compose.containers import ContainerInfo, parse_inspection
from tests.agents import wait_for
from tests.unit.test_compose_containers import INSPECTED

DEAF = ["sh", "-c", "trap '' TERM; sleep 60 & echo $!; wait"]
"""It ignores SIGTERM, and so does its child, whose process id it prints."""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def interrupt(process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt each wait for a child with this timeout."""
    wait = process.wait

    def interrupted(timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return wait()

    monkeypatch.setattr(process, "wait", interrupted)


def test_a_child_ends_without_a_waiting_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt), child_process(DEAF) as process:
        below = int(next(lines_of(process)))
        interrupt(process, monkeypatch)
    assert process.returncode == -signal.SIGKILL
    assert process.stdout is not None
    assert process.stdout.closed
    wait_for(lambda: not lives(below), "the end of what it has started")


def test_a_child_that_takes_too_long_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "STOP_S", 0.05)
    with child_process(DEAF) as process:
        below = int(next(lines_of(process)))
    assert process.returncode == -signal.SIGKILL
    wait_for(lambda: not lives(below), "the end of what it has started")


def test_a_child_gets_sigterm() -> None:
    with child_process(
        ["sh", "-c", "trap 'exit 7' TERM; echo on; while :; do sleep 0.05; done"]
    ) as process:
        next(lines_of(process))
    assert process.returncode == 7
    with child_process(["true"]) as process:
        assert list(lines_of(process)) == []
    assert process.returncode == 0


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerInfo:
    """A container of a file, and a `docker` that prints the content of `answer`."""
    file = tmp_path / "docker-compose.yml"
    file.write_text("services: {}\n")
    command = tmp_path / "docker"
    command.write_text(
        f'#!/bin/sh\necho "$@" "$LAB_IMAGE" "$LAB_FLAGS" > {tmp_path}/asked\n'
        f"cat {tmp_path}/answer >&2\n"
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LAB_FLAGS", "of this shell")
    made = replace(parse_inspection(INSPECTED), file=str(file), folder=str(tmp_path))
    return replace(made, variables={"LAB_FLAGS": "--epochs 1"})


def test_a_compose_file_counts_where_compose_would_change_nothing(
    seen: ContainerInfo, tmp_path: Path
) -> None:
    (tmp_path / "answer").write_text("DRY-RUN MODE -  Container mnist-worker-1-1  Running\n")
    assert compose_file("mnist", [seen]) == "services: {}\n"
    assert (tmp_path / "asked").read_text() == (
        "compose --ansi never --progress plain --dry-run --project-name mnist"
        f" --file {seen.file} --project-directory {tmp_path}"
        " create --no-build worker-1 lab:cuda --epochs 1\n"
    )


@pytest.mark.parametrize("change", ["Recreate", "Create", "Creating", "Removing"])
def test_an_edited_compose_file_does_not_count(
    seen: ContainerInfo, tmp_path: Path, change: str
) -> None:
    line = f"DRY-RUN MODE -  Container mnist-worker-1-1  {change}\n"
    (tmp_path / "answer").write_text(f"{line}DRY-RUN MODE -  Container other  Running\n")
    assert compose_file("mnist", [seen]) is None


def test_a_refused_or_missing_compose_file(seen: ContainerInfo, tmp_path: Path) -> None:
    assert compose_file("mnist", [seen]) is None  # cat fails
    (tmp_path / "answer").touch()
    assert compose_file("mnist", [seen, replace(seen, file="/other")]) is None
    assert compose_file("mnist", [seen]) is not None
    Path(seen.file).unlink()
    assert compose_file("mnist", [seen]) is None
    assert compose_file("mnist", []) is None


def test_a_compose_that_takes_too_long(
    seen: ContainerInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(cli, "TIMEOUT_S", 0.05)
    assert compose_file("mnist", [seen]) is None
