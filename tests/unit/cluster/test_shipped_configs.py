"""The shipped configs: one for each usual host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML

from lab.cluster.config import Cluster, load_cluster
from lab.cluster.config.cluster import Box, Job, LinkConfig, Node, RunConfig
from lab.cluster.config.schema import json_schema
from lab.cluster.gpu import take_inventory
from lab.cluster.placement.place import place
from lab.protocol.experiments.experiment import Experiment
from lab.protocol.experiments.registry import EXPERIMENTS
from tests.golden.boxes import box
from tests.support.rendering import render_file

ROOT = Path(__file__).parents[3]

# File: GPUs of the host, nodes, parameter servers, workers, GPUs that each worker sees.
TABLE = {
    "cluster.yaml": (8, 4, 1, 3, 2),
    "clusters/book.yaml": (1, 1, 1, 3, 1),
    "clusters/two-gpus.yaml": (2, 3, 1, 2, 1),
    "clusters/four-gpus.yaml": (4, 3, 1, 4, 1),
    "clusters/eight-gpus.yaml": (8, 5, 1, 8, 1),
    "clusters/two-ps.yaml": (8, 4, 2, 4, 2),
    "clusters/laptop.yaml": (0, 3, 1, 2, 0),
    "clusters/slow-link.yaml": (0, 4, 1, 3, 0),
    "clusters/slurm.yaml": (2, 3, 1, 2, 1),
}

# File: the jobs of those experiments that need another shape than parameter servers and workers.
SHAPES = {
    "clusters/hello.yaml": {"local": 3},
    "clusters/single.yaml": {"local": 1},
    "clusters/client.yaml": {"worker": 2, "client": 1},
    "clusters/in-graph.yaml": {"ps": 1, "worker": 2, "client": 1},
    "clusters/one-host.yaml": {"worker": 1},
    "clusters/workers.yaml": {"worker": 2},
    "clusters/coordinator.yaml": {"chief": 1, "ps": 1, "worker": 2},
    "clusters/evaluator.yaml": {"ps": 1, "worker": 2, "evaluator": 1},
    "clusters/estimator.yaml": {"chief": 1, "ps": 2, "worker": 3, "evaluator": 1},
}


def test_every_config_is_in_a_table_and_on_its_page() -> None:
    shipped = {f"clusters/{path.name}" for path in (ROOT / "clusters").iterdir()}
    assert shipped | {"cluster.yaml"} == {*TABLE, *SHAPES}
    page = (ROOT / "docs/reference/config.md").read_text()
    assert [name for name in (*TABLE, *SHAPES) if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", SHAPES)
def test_cluster_shape_matches_the_table(name: str) -> None:
    cluster = load_cluster(ROOT / name)
    assert {job: len(each.on) for job, each in cluster.jobs.items()} == SHAPES[name]
    assert cluster.name == Path(name).stem
    # All-reduce and towers need several GPUs; the others show as much on a CPU.
    assert cluster.gpus_needed == (
        2 if name in {"clusters/one-host.yaml", "clusters/workers.yaml"} else 0
    )


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_every_experiment_has_a_config_with_exactly_its_jobs(experiment: Experiment) -> None:
    shapes = [set(load_cluster(ROOT / name).jobs) for name in (*TABLE, *SHAPES)]
    assert set(experiment.jobs) in shapes


@pytest.mark.parametrize("name", TABLE)
def test_config_matches_the_table(name: str) -> None:
    cluster = load_cluster(ROOT / name)
    plan = place(cluster, take_inventory("index", cluster))
    workers = [task for task in plan.tasks if task.job == "worker"]
    (gpus_each,) = {len(task.gpus) for task in workers}
    servers = [task for task in plan.tasks if task.job == "ps"]
    assert all(task.gpus == () for task in servers)
    assert TABLE[name] == (
        cluster.gpus_needed,
        len(plan.nodes),
        len(servers),
        len(workers),
        gpus_each,
    )
    assert render_file(ROOT / name).count("\n") > len(plan.tasks)
    assert place(cluster, box(cluster.gpus_needed)).mode == "uuid"


def fields_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield each key of a config with its field; `*` stands for a name that the user chooses."""
    for name, field in model.model_fields.items():
        yield prefix + name, field
        text = str(field.annotation)
        for inner in (Box, Node, Job, LinkConfig, RunConfig):
            if f"{inner.__module__}.{inner.__qualname__}" in text:
                yield from fields_of(inner, f"{prefix}{name}{'.*' * ('dict[' in text)}.")


def test_the_page_lists_each_key_of_the_config_with_its_default() -> None:
    page = (ROOT / "docs/reference/config.md").read_text()
    table = page.partition("| key | default | meaning | example |\n")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\S+)` \| (.+?) \|", table, re.MULTILINE))
    fields = dict(fields_of(Cluster))
    assert list(shown) == list(fields)
    assert len(fields) == 28
    for key, field in fields.items():
        assert (shown[key] == "required") == field.is_required(), key
        value = field.get_default(call_default_factory=True, validated_data={})
        if isinstance(value, int):  # other defaults are empty, and the page describes them
            assert shown[key] == f"`{str(value).lower()}`", key
        else:
            assert "`" not in shown[key].replace("`ps`", ""), key


@pytest.mark.parametrize("page", ["docs/reference/config.md", "docs/zh/reference/config.md"])
def test_the_example_of_each_key_is_valid(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    rows = re.findall(r"^\| `([a-z_.*]+)` \|.*\| `([^`]+)` \|$", text, re.MULTILINE)
    assert len(rows) == 28
    schema = json_schema()
    for key, example in rows:
        ((name, value),) = YAML(typ="safe").load(example).items()
        assert name == key.rpartition(".")[2]
        Draft202012Validator({**part(schema, key), "$defs": schema["$defs"]}).validate(value)


def part(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """The schema of a key: `nodes.*.gpus`."""
    found = schema
    for name in key.split("."):
        if "$ref" in found:
            found = schema["$defs"][found["$ref"].rpartition("/")[2]]
        (found,) = (
            found["patternProperties"].values() if name == "*" else [found["properties"][name]]
        )
    return found
