"""The templates of the arguments that describe the cluster to a program."""

from __future__ import annotations

import pytest

from lab.task.protocol.cluster_args import fill_in

CLUSTER = {"ps": ["tf1:1"], "worker": ["tf2:1", "tf3:1"], "chief": []}


@pytest.mark.parametrize(
    ("template", "arguments"),
    [
        ("--job={job}", ["--job=worker"]),
        ("{job}-{index}", ["worker-1"]),
        ("--workers={worker_hosts}", ["--workers=tf2:1,tf3:1"]),
        ("--all=ps|{ps_hosts},worker|{worker_hosts}", ["--all=ps|tf1:1,worker|tf2:1,tf3:1"]),
        ("{worker_hosts...}", ["tf2:1", "tf3:1"]),
        ("--host={worker_hosts...}@{index}", ["--host=tf2:1@1", "--host=tf3:1@1"]),
        ("--hosts={worker_names}", ["--hosts=tf2,tf3"]),
        ("{worker_names...}", ["tf2", "tf3"]),
        ("--plain", ["--plain"]),
        ('{"a": {}, "index": 0}', ['{"a": {}, "index": 0}']),
        ("--chiefs={chief_hosts}", []),
        ("{evaluator_hosts...}", []),
    ],
)
def test_a_template_is_filled_in_for_a_task(template: str, arguments: list[str]) -> None:
    assert list(fill_in(template, "worker", 1, CLUSTER)) == arguments
