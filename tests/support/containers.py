"""A task's container, as the engine describes it."""

from __future__ import annotations

from typing import Any

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
