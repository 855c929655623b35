"""The map from the chapter and the post to the lab: every place that it names is there."""

from __future__ import annotations

import pytest

from lab.task.protocol.experiments import EXPERIMENTS
from tests.support.shown import ROOT, commands, dead_links, wrong_commands

PAGE = ROOT / "docs/chapter-map.md"
TEXT = PAGE.read_text("utf-8")


def test_every_link_has_a_target() -> None:
    assert dead_links(TEXT, PAGE.parent) == []


def test_every_command_exists() -> None:
    assert len(commands(TEXT)) > 20
    assert wrong_commands(TEXT) == []


def test_every_row_has_a_link() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ")]
    places = [row.split(" | ")[1] for row in rows]
    vague = {place for place in places if "](" not in place and "`" not in place}
    assert len(places) > 40
    assert vague == {"in the lab |", "--- |"}


@pytest.mark.parametrize("name", ["async", "sync", "async-mlp", "sync-mlp", "towers", "linear"])
def test_every_program_of_the_sources_has_its_experiment(name: str) -> None:
    assert name in EXPERIMENTS
    assert any(line.startswith(f"lab run {name} ") for line in commands(TEXT))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("`lab rnu async`", "no command rnu"),
        ("`lab run async --epoch 2`", "--epoch"),
        ("`lab run asnyc`", "no experiment asnyc"),
        ("`lab run async --cluster clusters/bok.yaml`", "no bok.yaml"),
        ("`lab run multiworker --cluster clusters/book.yaml`", "has other jobs"),
    ],
)
def test_a_wrong_command_is_found(text: str, fault: str) -> None:
    (found,) = wrong_commands(text)
    assert fault in found


def test_a_broken_link_is_found() -> None:
    text = "[a](lessons/no.md) [b](lessons/async.md#nowhere) [c](lessons/async.md#what-to-try)"
    assert dead_links(text, PAGE.parent) == ["lessons/no.md", "lessons/async.md#nowhere"]
