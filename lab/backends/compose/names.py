"""Labels and variables by which this backend knows its own."""

from __future__ import annotations

from typing import Final

PROJECT: Final = "lab.project"
NODE: Final = "lab.node"
TASK: Final = "lab.task"
GPUS: Final = "lab.gpus"
CLUSTER_SHA256: Final = "lab.cluster-sha256"
TENSORFLOW: Final = "lab.tensorflow"

COMPOSE_SERVICE: Final = "com.docker.compose.service"
COMPOSE_FOLDER: Final = "com.docker.compose.project.working_dir"
COMPOSE_FILE: Final = "com.docker.compose.project.config_files"

READER: Final = "lab.reader"
"""Marks a short-lived container that is no part of the environment: it reads the volume of one that
has stopped, or does a fault."""

FAULT: Final = "lab.fault"
"""Marks, of those, one that does a fault to a node's network; its value is the node."""

CLUSTER_VARIABLE: Final = "LAB_CLUSTER"
RUNS_MOUNT: Final = "/runs"
