"""`lab validate`.

Examples:
    # ./cluster.yaml
    lab validate
    # another description, for a program
    lab validate clusters/book.yaml --json
"""

from __future__ import annotations

from lab.cli.options import AsJson, ClusterArgument, ClusterFile
from lab.config import load_cluster
from lab.config.allocation import idle_gpus
from lab.console import notify, print_json
from lab.errors import ConfigError
from lab.run.project import cluster_path


def command(
    *, file: ClusterArgument = None, cluster: ClusterFile = None, json: AsJson = False
) -> None:
    """Check a description; all its faults at once."""
    path = cluster_path(cluster, file)
    try:
        described = load_cluster(path)
    except ConfigError as error:
        if json:
            print_json({"file": str(path), "valid": False, "problems": error.problems})
        raise
    warnings = idle_gpus(described)
    if json:
        print_json(
            {
                "file": str(path),
                "valid": True,
                "problems": [],
                "warnings": warnings,
                "sha256": described.sha256,
            }
        )
    else:
        for line in warnings:
            notify(f"warning: {line}")
        tasks = sum(len(job.on) for job in described.jobs.values())
        notify(f"{path}: valid: {described.name}, {len(described.nodes)} nodes, {tasks} tasks")
