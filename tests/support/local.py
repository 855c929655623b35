"""A plan for processes, and the record of its environment."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from lab.backends.local import state
from lab.backends.local.state import EnvironmentRecord, Isolation
from lab.backends.process import ProcessHandle
from lab.cluster.placement.plan import Link, Plan, PlannedNode, PlannedTask

PLAN = Plan(
    name="demo",
    mode="uuid",
    cluster_sha256="0" * 64,
    nodes=(PlannedNode("tf1"), PlannedNode("tf2", link=Link(rate_bits=10**8))),
    tasks=(
        PlannedTask("ps", 0, "tf1", 2222),
        PlannedTask("worker", 0, "tf2", 2222, gpus=("GPU-a", "GPU-b")),
        PlannedTask("worker", 1, "tf2", 2223, gpu_memory_fraction=0.2, memory_bytes=2**30),
    ),
)


def a_record(**changes: object) -> EnvironmentRecord:
    record = EnvironmentRecord(
        project="demo",
        cluster_sha256="0" * 64,
        root="/p",
        isolation=Isolation.NAMESPACES,
        process=ProcessHandle.of(os.getpid()),
        interpreter=sys.executable,
        nodes=state.nodes_of(PLAN, Isolation.NAMESPACES),
        tasks=state.tasks_of(PLAN, Isolation.NAMESPACES, root=Path("/p"), runs=Path("/v")),
        runtime="tensorflow",
        sources_sha256="5" * 64,
    )
    return replace(record, **changes)
