"""`lab render --run`: another run than the config's, and invalid runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.config import Cluster, parse_cluster
from lab.errors import InputError
from lab.render import (
    RenderOptions,
    planned_run,
    read_header,
    render_file,
    run_override,
    tensorflow_version,
)

TEXT = """version: 1
name: x
nodes: {a: {}, NODE: {}}
jobs: {ps: {on: [a]}, worker: {on: [a]}}
run: {experiment: async, flags: {epochs: 5}}
start: {ps-0: 1s}
"""


def cluster(node: str = "b", text: str = TEXT) -> Cluster:
    return parse_cluster(text.replace("NODE", node).encode(), "x.yaml")


def test_the_configs_run_another_one_and_none() -> None:
    own = planned_run(cluster())
    assert own is not None
    assert (own.arguments, dict(own.start)) == (("async", "--epochs=5"), {"ps-0": "1s"})
    other = planned_run(cluster(), run_override("sync", ["--epochs", "2"]))
    assert other is not None
    assert other.arguments == ("sync", "--epochs", "2")
    assert planned_run(cluster(), "none") is None
    assert planned_run(cluster(text=TEXT.replace("run:", "#"))) is None


@pytest.mark.parametrize("override", ["none", "sync --epochs 2", "'it''s'"])
def test_the_header_records_another_run(tmp_path: Path, override: str) -> None:
    (tmp_path / "x.yaml").write_text(TEXT.replace("NODE", "b"))
    if override.startswith("'"):
        override = run_override("sync", ["--checkpoint_dir=it's here"])
    recorded = read_header(render_file(tmp_path / "x.yaml", RenderOptions("none", None, override)))
    assert recorded is not None
    assert recorded.run == override
    assert read_header(render_file(tmp_path / "x.yaml", RenderOptions("none"))).run == ""  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("node", "override", "message"),
    [
        ("b", "asink", "--run: no experiment 'asink'; see `lab experiments`"),
        ("b", "hello", "--run: hello needs the job 'local'; choose another"),
        (
            "b",
            "sync '--checkpoint_dir=${HOME}'",
            "cannot be written to a compose file; write at most",
        ),
        ("b", "sync '--checkpoint_dir=a\nb'", "cannot be written to a compose file"),
        ("b", f"sync {'x' * 1000}", "cannot be written to a compose file"),
    ],
)
def test_a_run_that_cannot_be_rendered(node: str, override: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        planned_run(cluster(node), override)
    assert message in str(error.value)


def test_a_node_cannot_have_the_name_of_the_service() -> None:
    described = cluster("run", TEXT.replace("run: {", "#"))
    assert planned_run(described) is None
    with pytest.raises(InputError, match="the config has a node 'run'; both become services"):
        planned_run(described, "async")


def test_flags_need_an_experiment() -> None:
    for experiment in (None, "none"):
        with pytest.raises(InputError, match="flags after `--` need an experiment"):
            run_override(experiment, ["--epochs=2"])


def test_the_run_determines_the_tensorflow_of_the_tasks() -> None:
    run = planned_run(cluster())
    assert tensorflow_version(run, None, "2.15") == "2.21"
    assert tensorflow_version(None, "2.15", "2.21") == "2.15"
    assert tensorflow_version(None, None, "2.21") == "2.21"
    with pytest.raises(InputError, match="the config's run, 'async', needs TensorFlow"):
        tensorflow_version(run, "2.15", "2.21")
