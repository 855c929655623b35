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

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from lab.base.console import messages_shown, print_json
from lab.base.errors import ConfigError
from lab.base.formatting import counted
from lab.base.log import LOG
from lab.base.options import Switch
from lab.cluster.config import Cluster, load_cluster
from lab.cluster.config.allocation import idle_gpus
from lab.cluster.project import cluster_path
from lab.verbs.common_options import ClusterArgument, ClusterFile
from lab.verbs.printing import Called, print_result, prints


@dataclass(frozen=True, slots=True)
class Validated:
    """A cluster config without errors.

    Attributes:
        file: Its file.
        config: The config.
        warnings: What is allowed, but perhaps not meant: GPUs that no task uses.
    """

    file: Path
    config: Cluster
    warnings: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as a JSON value."""
        found = {"warnings": self.warnings, "sha256": self.config.sha256}
        return _result(self.file, []) | found

    @messages_shown()
    def show(self) -> None:
        """Print the warnings, and the number of nodes and tasks."""
        for line in self.warnings:
            LOG.warning(f"warning: {line}")
        nodes = counted(len(self.config.nodes), "node")
        tasks = sum(len(job.on) for job in self.config.jobs.values())
        LOG.info(f"{self.file}: valid: {self.config.name}, {nodes}, {counted(tasks, 'task')}")


class Schema:
    """The JSON Schema of a config."""

    def to_json(self) -> Any:  # noqa: ANN401  (an object)
        """Return the schema."""
        from lab.cluster.config.schema import json_schema  # noqa: PLC0415  (slow, rarely used)

        return json_schema()

    def show(self) -> None:
        """Print it, as with `--json`."""
        print_json(self.to_json())


def validate(
    file: ClusterArgument = None,
    *,
    cluster: ClusterFile = None,
    schema: Annotated[bool, Switch("print the JSON Schema of a config, and check none")] = False,
) -> Validated | Schema:
    """Check a config: its YAML, then its types, then its rules.

    Raises:
        InputError: The file does not exist or cannot be read.
        ConfigError: The config has errors; `problems` has all of them.
    """
    if schema:
        return Schema()
    path = cluster_path(cluster, file)
    config = load_cluster(path)
    return Validated(path, config, idle_gpus(config))


def _present(called: Called, *, json: bool) -> None:
    try:
        print_result(called(), json=json)
    except ConfigError as error:
        if json:
            path = cluster_path(called.keywords.get("cluster"), called.keywords.get("file"))
            print_json(_result(path, error.problems))
        raise


def _result(file: Path, problems: Sequence[str]) -> dict[str, Any]:
    return {"file": str(file), "valid": not problems, "problems": problems}


command = prints(validate, _present)
