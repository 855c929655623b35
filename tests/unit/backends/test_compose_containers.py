"""Values read from the engine's inspections, why there is no engine, and what differs on Podman."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from docker.errors import DockerException
from requests.exceptions import ConnectionError, ReadTimeout  # noqa: A004

from lab.backends.compose import cleanup, readiness
from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.image_build import Image, download_notice, image_of
from lab.backends.engine.client import Engine, engine_errors
from lab.backends.engine.containers import ContainerInfo, parse_inspection
from lab.backends.run_volume import NotFound, raise_for_exit_code
from lab.backends.state import Busy
from lab.base.errors import LabError
from lab.cluster.placement.plan import Plan
from tests.support.containers import INSPECTED, a_task
from tests.support.fakes import PLAN


def test_a_container_as_the_engine_describes_it() -> None:
    seen = parse_inspection(INSPECTED)
    assert (seen.task, seen.node, seen.service) == ("worker-1", "tf3", "worker-1")
    assert seen.gpus == ("GPU-4", "GPU-5")
    assert seen.volume == "mnist_runs"
    assert seen.variables["A"] == "b=c"
    assert seen.cluster_spec() == {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]}
    assert (seen.running, seen.up, seen.detail) == (True, False, "running (starting)")


@pytest.mark.parametrize(
    ("nodes", "gpus"),
    [((), ()), (("/dev/fuse", "/dev/nvidiactl"), ()), (("/dev/nvidiactl", "/dev/nvidia4"), None)],
)
def test_podman_reports_only_device_nodes(
    nodes: tuple[str, ...], gpus: tuple[str, ...] | None
) -> None:
    host = {
        "DeviceRequests": None,
        "Annotations": {"io.container.manager": "libpod"},
        "Devices": [{"PathOnHost": "/dev/null", "PathInContainer": node} for node in nodes],
    }
    seen = parse_inspection({**INSPECTED, "HostConfig": host})
    assert (seen.gpus, seen.planned) == (gpus, ("GPU-4", "GPU-5"))


def test_planned_and_actual_settings_are_distinguished() -> None:
    labels = {**INSPECTED["Config"]["Labels"], "lab.gpus": "GPU-1"}
    seen = parse_inspection({**INSPECTED, "Config": {**INSPECTED["Config"], "Labels": labels}})
    assert (seen.planned, seen.gpus) == (("GPU-1",), ("GPU-4", "GPU-5"))
    none = parse_inspection(
        {**INSPECTED, "Config": {**INSPECTED["Config"], "Labels": {"lab.gpus": ""}}}
    )
    assert none.planned == ()


def test_reason_of_an_unhealthy_task() -> None:
    def with_health(status: str) -> ContainerInfo:
        output = ["the agent's heartbeat is missing or too old\n", "GPU lost: \x1b[0m\n"]
        health = {"Status": status, "Log": [{"Output": each} for each in output]}
        return parse_inspection({**INSPECTED, "State": {**INSPECTED["State"], "Health": health}})

    seen = with_health("unhealthy")
    assert (seen.detail, seen.up) == ("running (unhealthy: GPU lost: \\x1b[0m)", False)
    # A restarted container shows nothing of its former end.
    assert with_health("healthy").detail == "running (healthy)"


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_lines(engine: Engine, seen: ContainerInfo) -> list[str]:
        return [f"{seen.service} said this"]

    monkeypatch.setattr(readiness, "last_lines", last_lines)


def looks(*seen: Sequence[ContainerInfo]) -> Callable[[], Sequence[ContainerInfo]]:
    queue: Iterator[Sequence[ContainerInfo]] = iter(seen)
    last: Sequence[ContainerInfo] = ()

    def look() -> Sequence[ContainerInfo]:
        nonlocal last
        last = next(queue, last)
        return last

    return look


def test_waits_until_all_are_up_and_reports_each_once(notices: list[str]) -> None:
    starting = replace(a_task(), health="starting", service="worker-2")
    up = replace(starting, health="healthy")
    look = looks([a_task(), starting], [a_task(), starting], [a_task(), up])
    readiness.wait_until_up(Engine(), look)
    assert notices == ["worker-1 is up (1 of 2)", "worker-2 is up (2 of 2)"]


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"state": "exited", "exit_code": 2}, "worker-1 ended immediately, exited (2)"),
        ({"health": "unhealthy"}, "worker-1 is unhealthy"),
        ({"health": "starting"}, "worker-1 is not up after 0 s: running (starting)"),
        ({"state": "created", "health": ""}, "worker-1 is not up after 0 s: created"),
    ],
)
def test_names_the_container_that_is_not_up(
    quiet: None, changes: dict[str, Any], output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "READY_S", 0.0)
    broken = replace(a_task(), **changes)
    with pytest.raises(LabError) as caught:
        readiness.wait_until_up(Engine(), looks([broken]))
    assert caught.value.what == f"{output}; its last lines: worker-1 said this"


def test_reason_of_a_container_without_a_start() -> None:
    arguments = 'could not select device driver "nvidia" with capabilities: [[gpu]]'
    broken = replace(a_task(), state="created", error=arguments)
    with pytest.raises(LabError, match="--gpus none"):
        readiness.wait_until_up(Engine(), looks([broken]))


@pytest.mark.parametrize(
    ("code", "kind", "output"),
    [
        (3, Busy, "run a is under way; follow it with `lab attach`"),
        (4, LabError, "run a is under way; see `lab runs`"),
        (1, LabError, "asking: run a is under way"),
        (126, NotFound, "asking: the container stopped during the call"),
        (137, NotFound, "asking: the container stopped during the call"),
        (None, NotFound, "asking: the container stopped during the call"),
    ],
)
def test_how_a_call_beside_the_volume_ended(
    code: int | None, kind: type[LabError], output: str
) -> None:
    raise_for_exit_code("asking", 0, b"")
    with pytest.raises(kind, match=output) as caught:
        raise_for_exit_code("asking", code, b"noise\nrun a is under way\n")
    assert type(caught.value) is kind


def test_download_size_of_a_build_is_printed_first() -> None:
    cpu = Image("tf1", "lab:cpu", "python:3.11-slim", "image-cpu")
    cuda = replace(cpu, name="lab:cuda", requirements="image-cuda")
    own = replace(cpu, tensorflow="./mine.whl")
    assert download_notice(cpu, has_base=False) == (
        "building lab:cpu downloads TensorFlow for CPUs (about 334 MB);"
        " base image python:3.11-slim (about 45 MB); the image takes 1.7 GB"
    )
    assert "(about 3.4 GB); base image python:3.11-slim is here" in download_notice(
        cuda, has_base=True
    )
    assert "./mine.whl (of unknown size)" in download_notice(own, has_base=True)


def test_the_image_of_a_rendered_file() -> None:
    args = {"BASE_IMAGE": "base", "REQUIREMENTS": "image-cpu", "TENSORFLOW": ""}
    build = {"args": args}
    services = {"tf1": {"image": "lab:cpu"}, "tf2": {"image": "lab:cpu", "build": build}}
    assert image_of({"services": services}) == Image("tf2", "lab:cpu", "base", "image-cpu")
    args["TENSORFLOW"] = "tensorflow==2.20"
    assert image_of({"services": services}).tensorflow == "tensorflow==2.20"
    with pytest.raises(ValueError, match="no service"):
        image_of({"services": {}})


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
    assert reason().startswith("the command `docker` is missing; install Docker Engine")


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


DENIED = "('Connection aborted.', PermissionError(13, 'Permission denied'))"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        # The messages of docker-py when it negotiates the version, and later.
        (DockerException(f"Error while fetching server API version: {DENIED}"), "usermod -aG dock"),
        (ConnectionError(DENIED), "usermod -aG docker"),
        (ReadTimeout("Read timed out. (read timeout=60)"), "does not answer"),
    ],
    ids=["no permission at first", "no permission", "hangs"],
)
def test_an_engine_that_cannot_be_asked(error: Exception, reason: str) -> None:
    with pytest.raises(LabError, match=reason), engine_errors("asking"):
        raise error


# ---- What differs on Podman, by the answers of Podman 5.4.2


PODMAN = {"Version": "5.4.2", "Components": [{"Name": "Podman Engine"}, {"Name": "Conmon"}]}
DOCKER = {"Version": "28.5.2", "Components": [{"Name": "Engine"}, {"Name": "containerd"}]}


def answering(version: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine with another id at each question, as Podman has it."""
    about = {"Name": "vm", "DockerRootDir": "/var/lib/storage"}
    client = Mock(version=lambda: version)
    client.info.side_effect = ({"ID": f"id-{number}", **about} for number in count(1))
    monkeypatch.setattr(Engine, "client", lambda _self: client)
    return Engine()


def test_podman_has_one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    podman = answering(PODMAN, monkeypatch)
    assert podman.id() == podman.id() == "podman:vm:/var/lib/storage"
    docker = answering(DOCKER, monkeypatch)
    assert docker.id() == "id-1"


def test_gpus_are_requested_by_cdi(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tuple(replace(task, gpus=("GPU-1",)) for task in PLAN.tasks)
    with_gpus = replace(PLAN, tasks=tasks)

    def gpus_by(plan: Plan) -> object:
        return ComposeBackend().boot(plan, root=Path()).options()["gpus-by"]

    answering(PODMAN, monkeypatch)
    assert (gpus_by(with_gpus), gpus_by(PLAN)) == ("cdi", "nvidia")
    answering(DOCKER, monkeypatch)
    assert gpus_by(with_gpus) == "nvidia"


def test_an_anchor_is_removed_after_the_tasks_that_joined_it() -> None:
    left = {
        "a": {"lab.node": "tf1"},
        "task": {"lab.node": "tf1", "lab.task": "ps-0"},
        "fault": {"lab.node": "tf1", "lab.reader": "mnist"},
        "reader": {"lab.reader": "mnist"},
    }

    def for_each(doing: str, containers: Sequence[Any], _: Callable[[Any], None]) -> None:
        if doing == "removing a container":
            if "a" in {each.id for each in containers} and len(left) > 1:
                raise LabError("a has dependent containers which must be removed before it")
            for each in containers:
                del left[each.id]

    podman = Mock(for_each=for_each)
    podman.containers = lambda *_: [Mock(id=name, labels=each) for name, each in left.items()]
    client = podman.client.return_value
    network, volume = Mock(id="network-1"), Mock(id="mnist_runs")
    client.networks.list.return_value, client.volumes.list.return_value = [network], [volume]
    cleanup.remove(podman, "mnist", keep={"network-1"}, keep_volumes=True)
    assert (network.remove.call_count, volume.remove.call_count) == (0, 0)
    cleanup.remove(podman, "mnist")
    assert (network.remove.call_count, volume.remove.call_count) == (1, 1)
    assert not left
