"""A child of a command ends with it, also after more interrupts; compose's file and its builds."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.compose import cli
from lab.backends.compose.cli import child_process, compose_file, lines_of
from lab.backends.engine.containers import parse_inspection
from lab.base.errors import LabError
from tests.support.agents import wait_for
from tests.support.containers import INSPECTED

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


def test_the_compose_file_of_containers(tmp_path: Path) -> None:
    file = tmp_path / "docker-compose.yml"
    seen = replace(parse_inspection(INSPECTED), file=str(file))
    assert seen.cluster_sha256
    assert compose_file([seen]) is None
    file.write_text(text := f"lab.cluster-sha256: {seen.cluster_sha256}\n")
    assert compose_file([seen, seen]) == text
    assert compose_file([seen, replace(seen, file="/other")]) is None
    assert compose_file([]) is None
    file.write_text("lab.cluster-sha256: of another config\n")
    assert compose_file([seen]) is None
    file.write_bytes(b"\xff")
    assert compose_file([seen]) is None


BUILDS = """\
time="2026-11-24T19:59:31Z" level=warning msg="Docker Compose is configured to build using Bake"
#1 [internal] load local bake definitions
#1 reading from stdin 514B done
#2 [a internal] load build definition from Dockerfile
#2 transferring dockerfile: 67B done
#2 DONE 0.1s
#5 resolve docker.io/library/mini:latest@sha256:bb2c 0.0s done
#6 [1/4] FROM docker.io/library/mini:latest
#6 [tf1  2/4] COPY requirements/image-cpu.txt /opt/requirements.txt
#7 [tf1  3/4] RUN certificates=/etc/ssl/certs/ca-certificates.crt; pip install
#7 3.787 Collecting absl-py==2.5.1
#7 [tf1  3/4] RUN certificates=/etc/ssl/certs/ca-certificates.crt; pip install
#7 3.830   Downloading absl_py-2.5.1-py3-none-any.whl (137 kB)
#7 exporting layers
#7 exporting layers 8.4s done
#7 exporting manifest sha256:95ab 0.0s done
#7 exporting attestation manifest sha256:275e 0.1s done
#7 unpacking to docker.io/library/a:1 0.1s done
#8 resolving provenance for metadata file
 a  Built
 a:1  Built
 Image a:1 Building\x20
 Container t-a-1  Started
 Network t_default Created\x20
time="2026-11-24T19:58:53Z" level=warning msg="falling back to the classic builder."
Sending build context to Docker daemon  2.099MB
Step 2/3 : RUN echo hello > /x
 ---> Running in f9347647cdaf
Removing intermediate container f9347647cdaf
"""


def test_a_build_shows_one_line_for_each_long_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    """Lines of Compose 2 and Compose 5, with and without buildx."""
    command = tmp_path / "docker"
    command.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/answer\n')
    command.chmod(0o755)
    (tmp_path / "answer").write_text(BUILDS)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    cli.Compose("t", tmp_path / "file", tmp_path).build("a", SOURCES_SHA256="0")
    asked = (tmp_path / "asked").read_text()
    assert asked.endswith(" build --build-arg=SOURCES_SHA256=0 a\n")
    steps = ["step 1 of 4", "step 3 of 4", "writing it", "step 2 of 3"]
    assert notices == [f"building the image: {step}" for step in steps]
    # What failed is in the last lines.
    command.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\nprintf '\\033[31mno\\n'; exit 1\n")
    notices.clear()
    with pytest.raises(LabError, match=r"building the image: .*no; see the lines above"):
        cli.Compose("t", tmp_path / "file", tmp_path).build("a")
    kept = [line.strip() for line in BUILDS.splitlines()[1 - cli.SHOWN_LINES :]]
    assert notices[-cli.SHOWN_LINES :] == [*kept, "\\x1b[31mno"]


def test_a_build_names_a_builder_that_compose_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = "compose build requires buildx 0.17.0 or later"
    (tmp_path / "docker").write_text(f"#!/bin/sh\necho {refusal} >&2; exit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(LabError, match=r"buildx plugin is too old: .* 0\.17\.0 or later") as caught:
        cli.Compose("t", tmp_path / "file", tmp_path).build("a")
    assert "docker-buildx-plugin" in caught.value.fix
