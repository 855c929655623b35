"""Recorded error messages of the engine and of compose, each with its hint."""

from __future__ import annotations

import hashlib
import json
import re
import socket
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.backends.engine.error_hints import HINTS, EngineKind, explain, is_podman, kind_by_address
from lab.base.text import visible
from tests.support.cli import ROOT
from tests.support.commands import python

# Their real messages (Engine 20.10.24 and 28, compose 2.40.3 and 5.6.1, Podman 5.4.2), shortened
# where long. Those of a real GPU are from NVIDIA's documents and issues.
RECORDED = [
    " Image lab:cpu Building \ncompose build requires buildx 0.17.0 or later",
    "compose build requires buildx 0.17 or later",
    'Error response from daemon: could not select device driver "nvidia" with'
    " capabilities: [[gpu compute utility]]",
    "permission denied while trying to connect to the Docker daemon socket at"
    " unix:///var/run/docker.sock: Get ...: dial unix /var/run/docker.sock: connect:"
    " permission denied",
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker"
    " daemon running?",
    "failed to create network mnist_cluster: Error response from daemon: could not find"
    " an available, non-overlapping IPv4 address pool among the defaults to assign to"
    " the network",
    "Error response from daemon: driver failed programming external connectivity on"
    " endpoint x: Bind for 127.0.0.1:6006 failed: port is already allocated",
    "#6 12.3 ERROR: Could not install packages due to an OSError: [Errno 28] No space"
    " left on device",
    "#6 2.955 ERROR: Could not find a version that satisfies the requirement nonesuch==1"
    " (from versions: none)",
    "#7 12.91 ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."
    " If you have updated the package versions, please update the hashes. Otherwise,"
    " examine the package contents carefully; someone may have tampered with them.\n"
    "#7 12.91     six==1.17.0 from https://index.example/six-1.17.0-py2.py3-none-any.whl"
    " (from -r /opt/requirements.txt (line 26)):\n"
    "#7 12.91         Expected sha256 0000\n"
    "#7 12.91              Got       "
    " 4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970",
    "failed to solve: failed to do request: Head"
    ' "https://registry.example/v2/library/python/manifests/3.11": dial tcp: lookup'
    " registry.example: no such host",
    "Step 1/9 : FROM python:3.11\n"
    'Get "https://registry.example/v2/": dial tcp: lookup registry.example: no such host',
    "unknown shorthand flag: 'p' in -p\nSee 'docker --help'.",
]


def test_each_recorded_error_has_cause_and_hint(snapshot: SnapshotAssertion) -> None:
    errors = [explain("booting", output.splitlines()) for output in RECORDED]
    assert [str(error) for error in errors] == snapshot
    assert [error for error in errors if not error.fix or not str(error).isprintable()] == []
    matched = {
        next(each for each in HINTS if re.search(each.pattern, text, re.IGNORECASE))
        for text in RECORDED
    }
    assert matched == set(HINTS)


NO_ENGINE = ["Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?"]
USER = "/run/user/1000"


@pytest.mark.parametrize(
    ("host", "fix"),
    [
        ("unix:///var/run/docker.sock", "`sudo systemctl start docker`"),
        (f"unix://{USER}/docker.sock", "`systemctl --user start docker`"),
        (f"unix://{USER}/podman/podman.sock", "`systemctl --user start podman.socket`"),
        ("unix:///run/podman/podman.sock", "`sudo systemctl start podman.socket`"),
        ("tcp://10.1.2.3:2375", "`sudo systemctl start docker`"),
    ],
)
def test_an_engine_that_does_not_answer_has_its_own_start_command(
    host: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setenv("XDG_RUNTIME_DIR", USER)
    assert explain("booting", NO_ENGINE).fix.startswith(f"start it with {fix}")


def test_the_kind_of_an_engine_is_also_that_of_dockers_context(tmp_path: Path) -> None:
    folder = tmp_path / "contexts/meta" / hashlib.sha256(b"rootless").hexdigest()
    folder.mkdir(parents=True)
    host = {"Host": f"unix://{USER}/docker.sock", "SkipTLSVerify": False}
    meta = {"Name": "rootless", "Metadata": {}, "Endpoints": {"docker": host}}
    (folder / "meta.json").write_text(json.dumps(meta))
    (tmp_path / "config.json").write_text('{"currentContext": "rootless"}')
    code = "from lab.backends.engine.error_hints import kind_by_address as k; print(k())"
    done = python(
        "-c", code, cwd=ROOT, env={"DOCKER_CONFIG": str(tmp_path), "PATH": "/usr/bin"}, check=True
    )
    assert done.stdout == f"{EngineKind(is_rootless=True)}\n"


def test_a_rootless_engine_that_is_not_named_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    refused = ["permission denied while trying to connect to the docker daemon"]
    named = "`export DOCKER_HOST=unix://$XDG_RUNTIME_DIR/docker.sock`"
    assert named not in explain("booting", NO_ENGINE).fix
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "docker.sock"))
        for lines in (NO_ENGINE, refused):
            assert explain("booting", lines).fix.startswith(named)
        assert named not in explain("booting", ["No space left on device"]).fix
        monkeypatch.setenv("DOCKER_HOST", "unix:///x.sock")
        assert named not in explain("booting", NO_ENGINE).fix


def test_podman_is_known_by_its_version() -> None:
    assert is_podman({"Version": "5.4.2", "Components": [{"Name": "Podman Engine"}]})
    assert not is_podman({"Version": "28.5.2", "Components": [{"Name": "Engine"}]})
    assert not is_podman({"Version": "28.5.2", "Components": None})
    assert kind_by_address({"DOCKER_HOST": "unix:///tmp/my-podman-api.sock"}) == EngineKind()


FULL_DISK = """
#6 9.1 OSError: [Errno 28] No space left on device
#6 9.2 ERROR: Could not find a version that satisfies the requirement keras
failed to solve: executor failed running [/bin/bash -c …]: exit code: 1"""
UNKNOWN = "\x1b[31mthe flux capacitor\x07 broke"
TIMED_OUT = "nvidia-container-cli: initialization error: driver rpc error: timed out"
BRACES = "Error response from daemon: Bind for {1}{what} failed: port is already allocated"


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (FULL_DISK, "the disk is full"),  # the cause precedes its effects
        # A failure after BuildKit has started is another one.
        ("#1 [internal] booting buildkit\n#7 ERROR: exit code: 1", "#7 ERROR: exit code: 1"),
        # An unknown error is quoted, and safe to show.
        (f"first\n{UNKNOWN}\n----\n\n", f"{visible(UNKNOWN)}; see the lines above"),
        ("docker: no nvidia-smi\nRun 'docker run --help' for more", "docker: no nvidia-smi"),
        (TIMED_OUT, TIMED_OUT),  # a driver that is too slow is there
        ("", "it failed without output"),
        # Braces of the engine are no places of the hint.
        (BRACES, "the address {1}{what} is in use; stop the process"),
    ],
)
def test_other_failures(output: str, error: str) -> None:
    assert str(explain("booting", output.splitlines())).startswith(f"booting: {error}")
