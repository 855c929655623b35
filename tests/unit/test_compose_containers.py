"""Values read from the engine's inspections, and their consequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lab.backends.compose import readiness
from lab.backends.compose.channel import _raise_for_exit_code
from lab.backends.compose.client import Engine, NotFound
from lab.backends.compose.containers import ContainerInfo, parse_inspection
from lab.backends.compose.image_build import Image, download_notice, image_of
from lab.backends.state import Busy
from lab.errors import LabError
from tests.support.containers import INSPECTED, a_task


def test_a_container_as_the_engine_describes_it() -> None:
    seen = parse_inspection(INSPECTED)
    assert (seen.task, seen.node, seen.service) == ("worker-1", "tf3", "worker-1")
    assert seen.gpus == ("GPU-4", "GPU-5")
    assert seen.volume == "mnist_runs"
    assert seen.variables["A"] == "b=c"
    assert seen.cluster_spec() == {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]}
    assert (seen.running, seen.up, seen.detail) == (True, False, "running (starting)")


def test_gpus_by_cdi_have_their_plain_ids() -> None:
    requests = [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=MIG-7", "nvidia.com/gpu=2"]}]
    seen = parse_inspection({**INSPECTED, "HostConfig": {"DeviceRequests": requests}})
    assert seen.gpus == ("MIG-7", "2")


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


def test_a_container_with_few_details() -> None:
    seen = parse_inspection(
        {
            **INSPECTED,
            "Config": {"Image": "lab:cpu", "Env": None, "Labels": None},
            "HostConfig": {"DeviceRequests": None},
            "Mounts": None,
            "State": {"Status": "exited", "ExitCode": 137, "StartedAt": "0001-01-01T00:00:00Z"},
        }
    )
    assert (seen.task, seen.gpus, seen.volume) == ("", (), "")
    assert seen.cluster_spec() == {}
    assert seen.detail == "exited (137)"


def test_planned_and_actual_settings_are_distinguished() -> None:
    labels = {**INSPECTED["Config"]["Labels"], "lab.gpus": "GPU-1"}
    seen = parse_inspection({**INSPECTED, "Config": {**INSPECTED["Config"], "Labels": labels}})
    assert (seen.planned, seen.gpus) == (("GPU-1",), ("GPU-4", "GPU-5"))
    none = parse_inspection(
        {**INSPECTED, "Config": {**INSPECTED["Config"], "Labels": {"lab.gpus": ""}}}
    )
    assert none.planned == ()
    # Rendered before there was such a label.
    older = parse_inspection({**INSPECTED, "Config": {**INSPECTED["Config"], "Labels": {}}})
    assert older.planned == older.gpus


def test_reason_of_an_unhealthy_task() -> None:
    def with_health(status: str) -> ContainerInfo:
        output = ["the agent's heartbeat is missing or too old\n", "GPU lost: \x1b[0m\n"]
        health = {"Status": status, "Log": [{"Output": each} for each in output]}
        return parse_inspection({**INSPECTED, "State": {**INSPECTED["State"], "Health": health}})

    seen = with_health("unhealthy")
    assert (seen.detail, seen.up) == ("running (unhealthy: GPU lost: \\x1b[0m)", False)
    # A restarted container shows nothing of its former end.
    assert with_health("healthy").detail == "running (healthy)"


def test_start_times_sort_as_text() -> None:
    times = ["2026-11-21T10:00:01Z", "2026-11-21T10:00:01.5Z", "2026-11-21T10:00:01.51Z"]
    states = [{**INSPECTED["State"], "StartedAt": time} for time in times]
    read_times = [parse_inspection({**INSPECTED, "State": state}).started for state in states]
    assert read_times == sorted(set(read_times))


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_lines(engine: Engine, seen: ContainerInfo) -> list[str]:
        return [f"{seen.service} said this"]

    monkeypatch.setattr(readiness, "last_lines", last_lines)


def looks(*seen: Sequence[ContainerInfo]) -> Callable[[], Sequence[ContainerInfo]]:
    """One look after the other; the last one stays."""
    queue: Iterator[Sequence[ContainerInfo]] = iter(seen)
    last: Sequence[ContainerInfo] = ()

    def look() -> Sequence[ContainerInfo]:
        nonlocal last
        last = next(queue, last)
        return last

    return look


def test_waits_until_all_are_up_and_reports_each_once() -> None:
    output: list[str] = []
    starting = replace(a_task(), health="starting", service="worker-2")
    up = replace(starting, health="healthy")
    look = looks([a_task(), starting], [a_task(), starting], [a_task(), up])
    readiness.wait_until_up(Engine(), look, output.append, timeout_s=30)
    assert output == ["worker-1 is up (1 of 2)", "worker-2 is up (2 of 2)"]


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"state": "exited", "exit_code": 2}, "worker-1 ended at once, exited (2)"),
        ({"health": "unhealthy"}, "worker-1 is unhealthy"),
        ({"health": "starting"}, "worker-1 is not up after 0 s: running (starting)"),
        ({"state": "created", "health": ""}, "worker-1 is not up after 0 s: created"),
    ],
)
def test_names_the_container_that_is_not_up(
    quiet: None, changes: dict[str, Any], output: str
) -> None:
    broken = replace(a_task(), **changes)
    with pytest.raises(LabError) as caught:
        readiness.wait_until_up(Engine(), looks([broken]), lambda line: None, timeout_s=0)
    assert caught.value.what == f"{output}; its last lines: worker-1 said this"


def test_reason_of_a_container_without_a_start() -> None:
    arguments = 'could not select device driver "nvidia" with capabilities: [[gpu]]'
    broken = replace(a_task(), state="created", error=arguments)
    with pytest.raises(LabError, match="--gpus none"):
        readiness.wait_until_up(Engine(), looks([broken]), lambda line: None, timeout_s=0)


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
    _raise_for_exit_code("asking", 0, b"")
    with pytest.raises(kind, match=output) as caught:
        _raise_for_exit_code("asking", code, b"noise\nrun a is under way\n")
    assert type(caught.value) is kind


def test_download_size_of_a_build_is_printed_first() -> None:
    cpu = Image("tf1", "lab:cpu", "python:3.11-slim", "image-cpu")
    cuda = replace(cpu, name="lab:cuda", requirements="image-cuda")
    other = replace(cpu, tensorflow="tensorflow[and-cuda]==2.20")
    own = replace(cpu, tensorflow="./mine.whl")
    old = replace(cpu, tensorflow="tensorflow-cpu==2.15.1", horovod="horovod")
    assert download_notice(cpu, has_base=False) == (
        "building lab:cpu downloads TensorFlow for CPUs (about 334 MB);"
        " base image python:3.11-slim (about 45 MB); the image takes 1.7 GB"
    )
    assert "(about 3.4 GB); base image python:3.11-slim is here" in download_notice(
        cuda, has_base=True
    )
    assert "libraries, tensorflow[and-cuda]==2.20 (about 3.4 GB)" in download_notice(
        other, has_base=True
    )
    assert "./mine.whl (of unknown size)" in download_notice(own, has_base=True)
    assert (
        "==2.15.1 (about 334 MB); a compiler for Horovod (about 73 MB), which runs for m"
    ) in download_notice(old, has_base=True)


def test_the_image_of_a_rendered_file() -> None:
    args = {"BASE_IMAGE": "base", "REQUIREMENTS": "image-cpu", "TENSORFLOW": ""}
    build = {"args": args}
    services = {"tf1": {"image": "lab:cpu"}, "tf2": {"image": "lab:cpu", "build": build}}
    assert image_of({"services": services}) == Image("tf2", "lab:cpu", "base", "image-cpu")
    args["TENSORFLOW"] = "tensorflow==2.20"
    assert image_of({"services": services}).tensorflow == "tensorflow==2.20"
    args["HOROVOD"] = "horovod"
    assert image_of({"services": services}).horovod == "horovod"
    with pytest.raises(ValueError, match="no service"):
        image_of({"services": {}})
