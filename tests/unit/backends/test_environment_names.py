"""The name of a directory's environment, when another directory has the name in the config."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lab
from lab.backends.compose.backend import ComposeBackend
from lab.backends.local import state
from lab.backends.selection import name_of, resolve
from tests.support.cli import CLUSTER, Host
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment, train

ADA = "/home/ada/\x1bmnist"


def own(root: Path, name: str = "mnist") -> str:
    return f"{name}-{hashlib.sha256(bytes(root)).hexdigest()[:4]}"


def folders(**named: str) -> Callable[[str], list[str]]:
    return lambda name: named.get(name.replace("-", "_"), "").split()


def test_a_name_belongs_to_the_first_directory_that_uses_it(tmp_path: Path) -> None:
    mine = own(tmp_path).replace("-", "_")
    (tmp_path / "link").symlink_to(tmp_path)
    for here in (tmp_path, tmp_path / "link"):
        assert name_of("mnist", here, folders()) == "mnist"
        assert name_of("mnist", here, folders(mnist=f"{tmp_path}")) == "mnist"
        assert name_of("mnist", here, folders(mnist=f"/a {tmp_path}")) == "mnist"
        assert name_of("mnist", here, folders(mnist="/a")) == own(tmp_path)
        # It keeps its own name while it has such an environment, whoever else has the other one.
        for other in ("", "/a", str(tmp_path)):
            named = folders(mnist=other, **{mine: str(tmp_path)})
            assert name_of("mnist", here, named) == own(tmp_path)
    assert name_of("mnist", tmp_path, lambda _name: [""]) == own(tmp_path)
    assert name_of("m" * 31, tmp_path, folders(**{"m" * 31: "/a"})) == own(tmp_path, "m" * 26)


@pytest.fixture
def second(host: Host) -> FakeEnvironment:
    """What is booted in this directory, while one of the same name is up in another one."""
    made = FakeEnvironment(host.folder / "second", tasks_do=train)
    made.project, made.folder = own(host.folder), str(host.folder)
    made.cluster_sha256 = host.environment.cluster_sha256
    host.environment.folder = ADA
    host.backend.made = made
    return made


LINE = "environment 'mnist' belongs to /home/ada/\\x1bmnist; this directory's is {!r}\n"


@pytest.mark.parametrize("line", ["up --gpus none", "run async --gpus none"])
def test_a_second_directory_boots_an_environment_of_its_own(
    host: Host, second: FakeEnvironment, line: str
) -> None:
    assert LINE.format(second.project) in host.lab(line)[1]
    assert (host.backend.booted, second.plan.name) == (1, second.project)
    assert not host.environment.runs()
    assert not host.environment.is_down


def test_commands_without_a_name_mean_the_directorys_environment(
    host: Host, second: FakeEnvironment
) -> None:
    host.backend.others = [second]
    assert f"environment '{second.project}' is already up" in host.lab("up --gpus none")[1]
    host.lab("run async --gpus none --detach")
    (request,) = second.runs()
    for thread in second.threads:
        thread.join()
    assert request.run_id in host.lab("attach last")[1]
    assert {each.name: each.directory for each in lab.ps()} == {
        "mnist": ADA,
        second.project: str(host.folder),
    }
    host.lab("down")
    assert (second.is_down, host.environment.is_down) == (True, False)
    host.lab("down mnist")
    assert host.environment.is_down


@pytest.mark.parametrize("name", ["mnist", "book"])
def test_no_command_means_the_only_environment_of_another_directory(host: Host, name: str) -> None:
    host.environment.project, host.environment.folder = name, ADA
    for line in ("down", "logs", "shell worker-0"):
        assert "not from here; run this command there, or boot one" in host.error(line)
    assert not host.environment.is_down


def test_the_directorys_environment_comes_before_one_of_another_backend(tmp_path: Path) -> None:
    theirs = FakeEnvironment(tmp_path / "theirs", folder=ADA)
    mine = FakeEnvironment(tmp_path / "mine", folder=str(tmp_path), backend="compose")
    known = [FakeBackend("local", theirs), FakeBackend("compose", mine)]
    assert resolve(None, "mnist", known, tmp_path) is mine
    assert resolve("mnist", None, known, tmp_path) is mine


def test_a_rendered_file_replaces_no_containers_of_another_directory(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker compose up` replaces the containers of a project with the name in the file."""
    monkeypatch.setattr("lab.backends.compose.backend.ComposeBackend", ComposeBackend)
    (host.folder / "cluster.yaml").write_text(CLUSTER)
    docker, file = host.folder / "bin/docker", host.folder / "compose.yaml"
    docker.parent.mkdir()
    monkeypatch.setenv("PATH", f"{docker.parent}{os.pathsep}{os.environ['PATH']}")

    def engine(folder: str) -> None:
        docker.write_text(f"#!/bin/sh\ncase $3 in *=mnist) printf '\\n%s\\n' '{folder}';; esac\n")
        docker.chmod(0o755)

    def rendered() -> tuple[str, str]:
        line = host.lab("render --gpus none")[1]
        return line, file.read_text()

    engine(str(host.folder))
    plain = rendered()[1]
    assert "\nname: mnist\n" in plain
    engine(ADA)
    host.lab("render --check")  # what is up does not matter
    line, text = rendered()
    mine = own(host.folder)
    assert LINE.format(mine) in line
    assert text == plain.replace(": mnist\n", f": {mine}\n")
    docker.write_text("#!/bin/sh\nexit 1\n")
    host.lab("render --check")
    assert rendered()[1] == plain


def test_without_namespaces_an_environment_has_its_own_ports() -> None:
    def ports(*addresses: str) -> list[int]:
        return [task.port for task in state.beside(PLAN, addresses).tasks]

    first = min(task.port for task in PLAN.tasks)
    count = len(PLAN.tasks)
    assert ports() == ports("tf1:2222", f"localhost:{first - 1}", f"localhost:{first + count}")
    assert ports() == [first + position for position in range(count)]
    taken = [f"localhost:{first + position}" for position in (1, count)]
    assert ports(*taken) == [first + count + 1 + position for position in range(count)]
    assert replace(state.beside(PLAN, taken), tasks=PLAN.tasks) == PLAN
