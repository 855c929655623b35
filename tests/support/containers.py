"""A task's container, as the engine describes it."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from lab.backends.engine.client import Engine
from lab.backends.engine.containers import ContainerInfo, parse_inspection

INSPECTED: dict[str, Any] = {
    "Id": "c0ffee",
    "Name": "/mnist-worker-1-1",
    "Image": "sha256:beef",
    "State": {
        "Status": "running",
        "ExitCode": 0,
        "Error": "",
        "StartedAt": "2026-11-21T10:00:01.5Z",
        "Health": {"Status": "starting"},
    },
    "Config": {
        "Image": "lab:cuda",
        "Env": [
            'LAB_CLUSTER={"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]}',
            "EMPTY=",
            "A=b=c",
        ],
        "Labels": {
            "com.docker.compose.service": "worker-1",
            "com.docker.compose.project.config_files": "/home/ada/docker-compose.yml",
            "com.docker.compose.project.working_dir": "/home/ada",
            "lab.project": "mnist",
            "lab.node": "tf3",
            "lab.task": "worker-1",
            "lab.gpus": "GPU-4,GPU-5",
            "lab.cluster-sha256": "abc",
        },
    },
    "HostConfig": {
        "DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": ["GPU-4", "nvidia.com/gpu=GPU-5"]}]
    },
    "Mounts": [
        {"Type": "bind", "Source": "/home/ada/data", "Destination": "/lab/data"},
        {"Type": "volume", "Name": "mnist_runs", "Destination": "/runs"},
    ],
}


def an_engine(*inspected: dict[str, Any], volumes: tuple[str, ...] = ()) -> Engine:
    engine = Engine()
    engine._local.client = Docker(*inspected, volumes=volumes)
    return engine


def inspected(**state: object) -> dict[str, Any]:
    made = copy.deepcopy(INSPECTED)
    made["State"].update(state)
    made["Config"]["Env"] = ['LAB_CLUSTER={"worker": ["tf2:2222", "tf3:2222"]}']
    return made


def a_task() -> ContainerInfo:
    return replace(parse_inspection(INSPECTED), health="healthy")


class Docker:
    """The few calls of docker-py's client that are used."""

    def __init__(self, *inspected: dict[str, Any], volumes: tuple[str, ...] = ()) -> None:
        self._containers = [
            SimpleNamespace(
                id=each["Id"],
                name=each["Name"],
                attrs=each,
                status=each["State"]["Status"],
                labels=each["Config"]["Labels"],
                logs=lambda **_: b"",
            )
            for each in inspected
        ]
        self._volumes = [SimpleNamespace(name=name) for name in volumes]
        self.containers = SimpleNamespace(list=self._list, get=lambda _: self._containers[0])
        self.networks = SimpleNamespace(list=lambda **_: [])
        self.volumes = SimpleNamespace(list=lambda **_: self._volumes)
        self.images = SimpleNamespace(list=lambda **_: [])
        self.api = SimpleNamespace(put_archive=lambda *_: False)

    def _list(self, *, filters: dict[str, list[str]], **_: object) -> list[SimpleNamespace]:
        wanted = [label.partition("=") for label in filters["label"]]
        return [
            each
            for each in self._containers
            if all(
                name in each.labels and value in {"", each.labels[name]}
                for name, _, value in wanted
            )
        ]
