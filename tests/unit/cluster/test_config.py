"""Reading a config: accepted values, errors, and equality of the digest."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lab.base.errors import ConfigError, InputError
from lab.base.text import visible
from lab.base.units import KIB, MIB, TIB
from lab.cluster.config import Cluster, load_cluster, parse_cluster
from lab.cluster.config.allocation import idle_gpus
from lab.cluster.config.load import text_of
from lab.cluster.config.schema import FILE, json_schema
from lab.cluster.config.yaml_reader import parse_scalar
from tests.golden.cases import GOOD, core

ROOT = Path(__file__).parents[3]
SHIPPED = sorted([ROOT / "cluster.yaml", *(ROOT / "clusters").glob("*.yaml")])
SMALL = "version: 1\nname: m\nnodes: {tf1: {gpus: 2}, tf2: {}}\njobs: {ps: {on: [tf1]}}\n"


def parse(text: str) -> Cluster:
    return parse_cluster(text.encode(), "cluster.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.exit_code == 2
    return caught.value.problems


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configs_are_valid_and_name_their_schema(path: Path) -> None:
    cluster = load_cluster(path)
    assert idle_gpus(cluster) == []
    again = parse_cluster(text_of(cluster).encode(), "text")  # as another host reads it
    assert again.sha256 == cluster.sha256
    assert (again.nodes, again.jobs, again.links) == (cluster.nodes, cluster.jobs, cluster.links)
    first = path.read_text(encoding="utf-8").splitlines()[0]
    name = first.removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / name).resolve() == FILE


@pytest.mark.parametrize("path", [*SHIPPED, *GOOD], ids=lambda path: path.stem)
def test_schema_accepts_valid_values(path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    jsonschema.validate(core(path.read_text(encoding="utf-8")), json_schema())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("on", "on"), ("yes", "yes"), ("y", "y"), ("1:30", "1:30"), ("1_000", "1_000")],
        *[("010", 10), ("0o10", 8), ("0x1F", 31), ("0b11", "0b11"), ("-3", -3), ("+3", 3)],
        *[("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("2026-11-21", "2026-11-21")],
        *[("true", True), ("False", False), ("tRUE", "tRUE"), ("~", None), ("", None)],
        *[(".inf", float("inf")), ("9" * 5000, "9" * 5000), ("=", "="), ("<<", "<<")],
    ],
)
def test_plain_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert parse_scalar(text) == value
    assert type(parse_scalar(text)) is type(value)


def test_byte_order_mark_and_windows_line_ends_are_accepted() -> None:
    plainly = parse(SMALL)
    assert parse_cluster(SMALL.replace("\n", "\r\n").encode("utf-8-sig"), "x") == plainly


def test_positions_count_lines_and_characters_from_one() -> None:
    assert problems(SMALL + "ports: 1\n")[0].startswith("cluster.yaml:5:1: ports: unknown key")
    moved = SMALL.replace("\n", "\r\n").replace("gpus", "gpsu")
    assert problems(moved)[0].startswith("cluster.yaml:3:15: nodes.tf1.gpsu: unknown key")
    assert problems(SMALL.replace("name: m", 'name: "é" # é')) == [
        "cluster.yaml:2:7: name: must be lower-case letters, digits and hyphens, at most 31, "
        'no hyphen first; not the string "é"'
    ]


def test_comments_and_stated_defaults_do_not_change_the_digest_but_order_does() -> None:
    digest = parse(SMALL).sha256
    assert len(digest) == 64
    assert parse(f"# x\n\n{SMALL}port: 2222 # y\nbox: {{}}\n").sha256 == digest
    swapped = SMALL.replace("tf1: {gpus: 2}, tf2: {}", "tf2: {}, tf1: {gpus: 2}")
    assert parse(swapped).sha256 != digest
    assert parse(SMALL + "port: 2223\n").sha256 != digest
    assert parse(SMALL + "links: {tf1: {rate: 1gbit}}\n").sha256 == (
        parse(SMALL + "links: {tf1: {rate: 1000mbit}}\n").sha256
    )


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda path: None, "there is no file"),
        (lambda path: path.mkdir(), "is a directory"),
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.symlink_to(path), "cannot be read"),
    ],
    ids=["missing", "directory", "fifo", "loop"],
)
def test_unreadable_file_is_named_with_a_hint(
    make: Callable[[Path], None], what: str, tmp_path: Path
) -> None:
    path = tmp_path / "my\x1bcluster.yaml"
    make(path)
    with pytest.raises(InputError) as caught:
        load_cluster(path)
    assert what in caught.value.what
    assert "my\\x1bcluster.yaml" in caught.value.what
    assert "--cluster" in caught.value.fix


def test_a_small_file_with_very_many_faults_is_read_in_linear_time() -> None:
    keys = "".join(f"k{index}: [a\n" for index in range(10))
    assert len(problems(keys)) == 1
    many = "".join(f"key{index}: 1\n" for index in range(10_000))
    found = problems(SMALL + many)
    assert len(found) == 101
    assert found[-1] == "cluster.yaml: … and 9900 more problems like these"


@pytest.mark.parametrize(
    ("jobs", "lines"),
    [
        ("{ps: {on: [a]}, worker: {on: [b], gpus: 2}}", ["a: 2 of 2 GPUs unused"]),
        ("{ps: {on: [a], gpus: 0}, worker: {on: [b], gpus: 2}}", []),  # the config says so
        ("{worker: {on: [b], gpus: 2}}", ["a: 2 of 2 GPUs unused"]),
        (
            "{worker: {on: [a, b], gpus: 1}}",
            ["a: 1 of 2 GPUs unused", "b: 1 of 2 GPUs unused"],
        ),
        ("{worker: {on: [a, b]}}", []),
        ("{worker: {on: [a, a, b, b], share: true}}", []),
    ],
)
def test_gpus_that_no_task_uses_are_counted(jobs: str, lines: list[str]) -> None:
    text = f"version: 1\nname: x\nnodes: {{a: {{gpus: 2}}, b: {{gpus: 2}}}}\njobs: {jobs}\n"
    assert idle_gpus(parse_cluster(text.encode(), "x.yaml")) == lines


def test_a_refused_node_name_gets_a_free_one() -> None:
    text = """
        version: 1
        name: x
        nodes: {localhost: {}, tf1: {}, run: {}, ps-0: {}}
        jobs: {ps: {on: [tf1]}, worker: {on: [tf1]}}
        run: {experiment: async}
    """
    found = problems(text)
    assert len(found) == 3
    assert all(line.endswith("; use tf2, for example") for line in found)


@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbf")
@example(b"\x00")
@example(b"%YAML 9.9\n---\na: 1\n")
@example(b"? - a\n: b\n")
@example(b"{? [a]: b, ? {c: d}, e}")
@example(b"a: !<tag:x> &y\n")
@example(b"- " * 20_000)
@example(b"[" * 100_000)
@example(b"{a: " * 100_000)
@example(b"x" * 500_000)
@example(b"port: " + b"9" * 100_000)
@example(b"name: 'a\nb'\n")
@example(b"---\n")
@example(b"name: &a b\nport: &a 1\n")
@pytest.mark.filterwarnings("error")
def test_any_bytes_give_a_config_or_a_clear_error(data: bytes) -> None:
    try:
        assert isinstance(parse_cluster(data, "cluster.yaml"), Cluster)
    except ConfigError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.startswith("cluster.yaml:")
            assert problem == visible(problem)
            assert len(problem) < 2000


# ---- A config as text, which another host reads as the same config


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
