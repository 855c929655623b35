"""The pictures of terminals: stills, and the clip of the README."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.agents import ROOT
from tools.terminal import END_S, RUN_S, Frame, drawn, speed

CLIP = ROOT / "docs/images/run.svg"
COLOURED = "\x1b[0mworker-1  \x1b[32msucceeded\x1b[39m  3 & 4"
FRAMES = [
    Frame(0, ("$ lab", "")),
    Frame(7, ("$ lab", "  one")),
    Frame(7.5, ("$ lab", "  one")),
    Frame(14, ("$ lab", COLOURED)),
    Frame(15, ("$ lab", COLOURED)),
]


def begins(svg: str) -> list[float]:
    """When each frame begins, in seconds."""
    length_s = float(re.search(r"animation:show (\S+)s", svg)[1])
    return [float(share) / 100 * length_s for share in re.findall(r"([\d.]+)%\{transform", svg)]


def shown(svg: str) -> str:
    """All rows of the terminal, each once."""
    rows = re.findall(r'<g id="r\d+">(.*?)</g>', svg)
    return "\n".join(unescape(re.sub(r"<.*?>", "", row)) for row in rows)


def test_a_clip_shows_the_command_and_then_its_end() -> None:
    clip = drawn(FRAMES, "a < b")
    ElementTree.fromstring(clip)  # noqa: S314  (written by the line above)
    assert begins(clip) == pytest.approx([0, RUN_S / 2, RUN_S], abs=0.01)
    assert "animation:show 12s" in clip
    assert speed(FRAMES) == 2
    assert set(shown(clip).split("\n")) == {"$ lab", "  one", "worker-1  succeeded  3 & 4"}
    assert len(re.findall("<use", clip)) == 5


def test_a_clip_respects_what_the_reader_prefers() -> None:
    clip = drawn(FRAMES, "lab")
    last = re.search(r"58\.33%\{(transform:\S+?)\}", clip)[1]
    assert f"reduced-motion:reduce){{#screen{{animation:none;{last}" in clip
    light, dark = clip.split("@media (prefers-color-scheme:dark)")
    greens = [re.findall(r"fill: (#\w+)", each.split("<defs>")[0]) for each in (light, dark)]
    assert len(greens[0]) == len(greens[1]) == 2
    assert not set(greens[0]) & set(greens[1])


def test_a_still_does_not_move() -> None:
    assert begins(drawn(FRAMES[-1:], "lab")) == [0]


def test_the_clip_of_the_readme_shows_a_fault_and_five_seconds_of_the_result() -> None:
    svg = CLIP.read_text("utf-8")
    assert len(svg) < 150_000
    assert begins(svg)[-1] == pytest.approx(RUN_S, abs=0.01)
    assert RUN_S + END_S == 12
    rows = shown(svg)
    for words in ("killed by SIGKILL", r"worker-1 +starting", r"restarted +worker-1 1x"):
        assert re.search(words, rows), words


@pytest.mark.parametrize("name", ["terminal.svg", "terminal-fault.svg"])
def test_a_picture_of_a_terminal_is_small(name: str) -> None:
    assert Path(CLIP.parent, name).stat().st_size < 10_000
