"""`lab validate`.

Examples:
    # ./cluster.yaml
    lab validate
    # another config, as JSON
    lab validate clusters/book.yaml --json
    # the JSON Schema of a config, for an editor
    lab validate --schema > cluster.schema.json
"""

from __future__ import annotations

from typing import Annotated

from lab.base.options import Switch
from lab.config import load_cluster
from lab.config.allocation import idle_gpus
from lab.console import print_json
from lab.errors import ConfigError
from lab.formatting import counted
from lab.log import LOG
from lab.project import cluster_path
from lab.verbs.common_options import AsJson, ClusterArgument, ClusterFile


def command(
    *,
    file: ClusterArgument = None,
    cluster: ClusterFile = None,
    schema: Annotated[bool, Switch("print the JSON Schema of a config, and check none")] = False,
    json: AsJson = False,
) -> None:
    """Check a config: its YAML, then its types, then its rules."""
    if schema:
        # Imported here: a check does not need it.
        from lab.config.schema import json_schema  # noqa: PLC0415

        print_json(json_schema())
        return
    path = cluster_path(cluster, file)
    found: dict[str, object] = {"file": str(path), "valid": True, "problems": []}
    try:
        config = load_cluster(path)
    except ConfigError as error:
        if json:
            print_json(found | {"valid": False, "problems": error.problems})
        raise
    warnings = idle_gpus(config)
    if json:
        print_json(found | {"warnings": warnings, "sha256": config.sha256})
    else:
        for line in warnings:
            LOG.warning(f"warning: {line}")
        nodes = counted(len(config.nodes), "node")
        tasks = sum(len(job.on) for job in config.jobs.values())
        LOG.info(f"{path}: valid: {config.name}, {nodes}, {counted(tasks, 'task')}")
