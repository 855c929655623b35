"""Reasons for a missing engine or compose: one line each, with a hint."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lab.backends.compose import ComposeBackend
from lab.backends.compose.client import Engine, engine_errors
from lab.errors import LabError


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory where commands are found; it is empty."""
    for name in ("DOCKER_CONTEXT", "DOCKER_TLS_VERIFY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def a_docker(folder: Path, script: str) -> None:
    command = folder / "docker"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


def reason() -> str:
    fault = ComposeBackend().unavailable_reason()
    assert fault is not None
    assert "\n" not in fault
    return fault


def test_no_docker_command(commands: Path) -> None:
    assert reason().startswith("there is no docker command; install Docker Engine")


def test_no_engine(commands: Path) -> None:
    a_docker(commands, "exit 0")
    assert "no Docker engine answers; start it" in reason()


def test_no_process_outlives_the_check(commands: Path, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    a_docker(commands, f"/bin/sleep 1; /bin/touch {ended}; echo 2.40.3")
    assert "no Docker engine answers" in reason()
    assert ended.exists()


def test_an_engine_that_closes(commands: Path, tmp_path: Path) -> None:
    a_docker(commands, "exit 0")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "docker.sock"))
        assert "no Docker engine answers; start it" in reason()


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("echo \"docker: 'compose' is not a docker command.\" >&2; exit 1", "no compose plugin"),
        ("echo 2.3.3", "docker compose 2.3.3 is too old; install 2.19"),
    ],
)
def test_no_compose(
    commands: Path, monkeypatch: pytest.MonkeyPatch, script: str, output: str
) -> None:
    monkeypatch.setattr(Engine, "version", lambda self: "28.0.0")
    a_docker(commands, script)
    assert output in reason()
    a_docker(commands, "echo v2.40.3-desktop.1")
    assert ComposeBackend().unavailable_reason() is None


def test_no_permission() -> None:
    import docker.errors  # noqa: PLC0415
    import requests.exceptions  # noqa: PLC0415

    # The messages of docker-py when it negotiates the version, and later.
    denied = "('Connection aborted.', PermissionError(13, 'Permission denied'))"
    for error in (
        docker.errors.DockerException(f"Error while fetching server API version: {denied}"),
        requests.exceptions.ConnectionError(denied),
    ):
        with pytest.raises(LabError, match="usermod -aG docker"), engine_errors("asking"):
            raise error


def test_an_engine_that_hangs() -> None:
    import requests.exceptions  # noqa: PLC0415

    with pytest.raises(LabError, match="does not answer"), engine_errors("asking"):
        raise requests.exceptions.ReadTimeout("Read timed out. (read timeout=60)")


def test_a_seat_without_docker_has_no_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CLASS_DIR", "/state/classes/w/seats/ada")
    assert reason() == "a seat of a class without Docker has no containers; use `--backend local`"
