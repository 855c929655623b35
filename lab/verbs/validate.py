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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from lab.base import strict_json
from lab.base.formatting import counted
from lab.base.options import Switch, verb
from lab.cluster.config import Cluster, load_cluster
from lab.cluster.config.allocation import idle_gpus
from lab.cluster.project import cluster_path
from lab.verbs.common_options import ClusterArgument, ClusterFile
from lab.verbs.printing import Called, Note, Shown, print_checked, prints


@dataclass(frozen=True, slots=True, repr=False)
class Validated(Shown):
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
        return {"file": str(self.file), "valid": True, "problems": [], **found}

    def _shown(self) -> Iterator[Note]:
        yield from (Note(f"warning: {line}") for line in self.warnings)
        nodes = counted(len(self.config.nodes), "node")
        tasks = sum(len(job.on) for job in self.config.jobs.values())
        yield Note(f"{self.file}: valid: {self.config.name}, {nodes}, {counted(tasks, 'task')}")


class Schema(Shown):
    """The JSON Schema of a config."""

    def to_json(self) -> Any:  # noqa: ANN401  (an object)
        """Return the schema."""
        from lab.cluster.config.schema import json_schema  # noqa: PLC0415  (slow, rarely used)

        return json_schema()

    def _shown(self) -> Iterator[str]:
        yield strict_json.dump(self.to_json(), indent=2)


@verb
def validate(
    file: ClusterArgument = None,
    *,
    cluster: ClusterFile = None,
    schema: Annotated[bool, Switch("print the JSON Schema instead of checking a config")] = False,
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
    given = called.keywords
    file = partial(cluster_path, given.get("cluster"), given.get("file"))
    print_checked(called, file, json=json)


command = prints(validate, _present)
