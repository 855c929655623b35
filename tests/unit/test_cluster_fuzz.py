"""Any bytes of a file give a config or a clear error."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lab.config import Cluster, parse_cluster
from lab.errors import ConfigError
from lab.task.text import visible
from tests.golden.cases import BAD, GOOD

FILES = [path.read_bytes() for path in [*GOOD, *BAD]]
WORDS = [
    *("version", "name", "box", "nodes", "jobs", "port", "links", "on", "gpus", "share", "ps"),
    *("worker", "tf1", "tf2", "cpus", "memory", "rate", "delay", "gpu_memory_fraction"),
    *("1", "0", "-1", "2222", "1e999", ".nan", "true", "~", "8GiB", "5ms", "GPU-0", "a: b"),
]
values = st.recursive(
    st.sampled_from(WORDS) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}"
        )
    ),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from(WORDS[:7]), values, max_size=7).map(
    lambda pairs: "".join(f"{key}: {value}\n" for key, value in pairs.items()).encode()
)


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A golden file with a piece cut out and another put in."""
    data = draw(st.sampled_from(FILES))
    start = draw(st.integers(0, len(data)))
    end = draw(st.integers(start, min(len(data), start + 20)))
    put_in = st.binary(max_size=6) | st.sampled_from([word.encode() for word in WORDS])
    return data[:start] + draw(put_in) + data[end:]


def reads(data: bytes) -> None:
    try:
        assert isinstance(parse_cluster(data, "cluster.yaml"), Cluster)
    except ConfigError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.startswith("cluster.yaml:")
            assert problem == visible(problem)
            assert len(problem) < 2000


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
def test_any_bytes(data: bytes) -> None:
    reads(data)


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    reads(text.encode("utf-8", "surrogatepass"))


@settings(max_examples=400)
@given(documents)
def test_config_like_text(data: bytes) -> None:
    reads(data)


@settings(max_examples=400)
@given(mutations())
def test_any_change_of_a_golden_file(data: bytes) -> None:
    reads(data)
