"""A config as text, which another host reads as the same config."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.config import load_cluster, parse_cluster
from lab.config.text import text_of
from lab.units import KIB, MIB, TIB
from tests.support.fakes import PLAN

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "path", [ROOT / "cluster.yaml", *sorted((ROOT / "clusters").glob("*.yaml"))], ids=str
)
def test_a_config_is_the_same_after_its_text(path: Path) -> None:
    cluster = load_cluster(path)
    again = parse_cluster(text_of(cluster).encode(), "text")
    assert again.sha256 == cluster.sha256
    assert (again.nodes, again.jobs, again.links) == (cluster.nodes, cluster.jobs, cluster.links)


CONFIG = (
    "{{version: 1, name: m, nodes: {{tf1: {{memory: {memory}}}}},"
    " jobs: {{worker: {{on: [tf1]}}}}, links: {{tf1: {link}}}}}"
)


@given(
    st.tuples(st.integers(64, 4096), st.integers(0, 999), st.sampled_from(["MiB", "GiB", "TiB"])),
    st.tuples(st.integers(8, 999_999), st.integers(0, 999), st.just("kbit")),
    st.tuples(st.integers(1, 9999), st.sampled_from(["us", "ms"])),
)
def test_amounts_are_the_same(
    memory: tuple[int, int, str], rate: tuple[int, int, str], delay: tuple[int, str]
) -> None:
    amount = "{}.{:03}{}".format(*memory) if memory[2] != "TiB" else f"{memory[0] % 64 or 1}TiB"
    link = "{{rate: {}.{:03}{}, delay: {}{}}}".format(*rate, *delay)
    cluster = parse_cluster(CONFIG.format(memory=amount, link=link).encode(), "cluster.yaml")
    again = parse_cluster(text_of(cluster).encode(), "text")
    assert again.links == cluster.links
    before, after = cluster.nodes["tf1"].memory, again.nodes["tf1"].memory
    assert before is not None
    assert after is not None
    if before % KIB == 0:
        assert after == before
    assert abs(after - before) <= (2 if before < TIB // 2 else MIB)


def test_the_run_is_not_part_of_the_text() -> None:
    text = text_of(load_cluster(ROOT / "cluster.yaml"))
    assert "async" not in text
    assert PLAN.config == ""
