"""The pictures of terminals: stills, and the clip of the README."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from tests.support.agents import ROOT
from tools.terminal import END_S, RUN_S

CLIP = ROOT / "docs/images/run.svg"


def begins(svg: str) -> list[float]:
    length_s = float(re.search(r"animation:show (\S+)s", svg)[1])
    return [float(share) / 100 * length_s for share in re.findall(r"([\d.]+)%\{transform", svg)]


def shown(svg: str) -> str:
    rows = re.findall(r'<g id="r\d+">(.*?)</g>', svg)
    return "\n".join(unescape(re.sub(r"<.*?>", "", row)) for row in rows)


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
