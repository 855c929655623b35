"""`lab validate`."""

from __future__ import annotations

from lab.cli.options import AsJson, ClusterFile, ClusterWord
from lab.config import load_cluster
from lab.config.allocation import unused
from lab.console import print_json, say
from lab.errors import DescriptionError
from lab.run.project import cluster_path


def command(*, file: ClusterWord = None, cluster: ClusterFile = None, json: AsJson = False) -> None:
    """Check a description; all its faults at once."""
    path = cluster_path(cluster, file)
    try:
        described = load_cluster(path)
    except DescriptionError as error:
        if json:
            print_json({"file": str(path), "valid": False, "problems": error.problems})
        raise
    warnings = unused(described)
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
            say(f"warning: {line}")
        tasks = sum(len(job.on) for job in described.jobs.values())
        say(f"{path}: valid: {described.name}, {len(described.nodes)} nodes, {tasks} tasks")
