"""Record a command in a real terminal, and draw what it shows: an SVG, still or moving.

tmux is the terminal, and rich draws its rows. The colours are those that the reader prefers. A
reader who prefers less motion sees the end.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text

from tests.support import engine
from tests.support.agents import wait_for

COLUMNS: Final = 90
ROWS: Final = 22
RUN_S: Final = 7.0
"""How long a clip shows the command, in seconds."""

END_S: Final = 5.0
"""How long a clip shows the last frame, in seconds."""

_PERIOD_S: Final = 1.0
"""Between two looks at the terminal."""

_COLUMN, _ROW, _BAR, _EDGE = 12.2, 24.4, 40.0, 16.0
"""The size of a character, the height of the bar above, and the edge, in units of the SVG."""

_SPAN: Final = re.compile(
    r'<text class="t-(\w+)" (x="\S+") y="\S+" (textLength="\S+") clip-path="url\(#t-line-(\d+)\)">'
    r"([^\n]*?)</text>"
)
"""A text in the SVG of rich: its style, its place and length, its row, and what it says."""

_PAGE: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" \
viewBox="0 0 {width} {height}">
<title>{title}</title>
<style>
text{{font:20px 'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}}
#screen{{animation:show {length_s:g}s step-end infinite}}
@keyframes show{{{keyframes}}}
@media (prefers-reduced-motion:reduce){{#screen{{animation:none;transform:translateY({end}px)}}}}
{light}
@media (prefers-color-scheme:dark){{{dark}}}
</style>
<defs>
{rows}
</defs>
<rect class="ground" width="{width}" height="{height}" rx="10"/>
<text class="bar" x="{middle}" y="27" text-anchor="middle">{title}</text>
<svg x="{edge}" y="{bar}" width="{inner_width}" height="{inner_height}"><g id="screen">
{frames}
</g></svg>
</svg>
"""


@dataclass(frozen=True, slots=True)
class Frame:
    """What a terminal showed.

    Attributes:
        at_s: The time since the command began, in seconds.
        rows: Its rows, with ANSI's escape sequences for colours.
    """

    at_s: float
    rows: tuple[str, ...]

    def __contains__(self, words: str) -> bool:
        return words in "\n".join(Text.from_ansi(row).plain for row in self.rows)


def record(command: str, *, cwd: Path, env: Mapping[str, str]) -> list[Frame]:
    """Type a command into a shell, and look at the terminal each second until it has ended.

    Args:
        command: The command.
        cwd: The directory of the shell.
        env: The variables of the shell.

    Raises:
        NoEngine: tmux is missing, and cannot be installed.
    """
    engine.install("tmux")
    with tempfile.TemporaryDirectory(prefix="lab-terminal-") as folder, _shell(folder, cwd, env):

        def tmux(*arguments: str) -> str:
            words = ("tmux", "-S", f"{folder}/socket", *arguments)
            return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout

        def look() -> tuple[str, ...]:
            return tuple(tmux("capture-pane", "-e", "-p").splitlines())

        wait_for(Path(folder, "prompt-0").exists, "the first prompt", 60)
        tmux("send-keys", "-l", command)
        wait_for(lambda: command[-5:] in Text.from_ansi("".join(look())).plain, "the command", 60)
        frames = [Frame(0, look())]
        began = time.monotonic()
        tmux("send-keys", "Enter")
        while not Path(folder, "prompt-1").exists():
            time.sleep(_PERIOD_S)
            frames.append(Frame(time.monotonic() - began, look()))
        return frames


@contextmanager
def _shell(folder: str, cwd: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Start a shell in a terminal. It writes a file at each prompt: first `prompt-0`."""
    Path(folder, "tmux.conf").write_text(
        "set -g status off\nset -g default-terminal screen-256color"
    )
    prompt = f"PROMPT_COMMAND=: >{folder}/prompt-$((n++))"
    shell = shlex.join(["env", "PS1=$ ", prompt, "bash", "--norc"])
    tmux = ("tmux", "-S", f"{folder}/socket", "-f", f"{folder}/tmux.conf")
    size = ("-x", str(COLUMNS), "-y", str(ROWS))
    subprocess.run([*tmux, "new-session", "-d", *size, shell], cwd=cwd, env=env, check=True)
    try:
        yield
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)


def speed(frames: Sequence[Frame]) -> float:
    """How many times as fast as the command a clip of these frames is."""
    end = next(frame for frame in frames if frame.rows == frames[-1].rows)
    return end.at_s / RUN_S or 1


def drawn(frames: Sequence[Frame], title: str) -> str:
    """Draw one frame, or a clip: all frames in `RUN_S` seconds, then the last one for `END_S`.

    Args:
        frames: The frames, in the order of their times.
        title: The text above the terminal.
    """
    shown = [next(same) for _, same in groupby(frames, lambda frame: frame.rows)]
    length_s = RUN_S + END_S if len(shown) > 1 else 1
    texts = sorted({row for frame in shown for row in frame.rows if row.strip()})
    number = {row: place for place, row in enumerate(texts)}
    rows, light = _rich(texts, DEFAULT_TERMINAL_THEME)
    _, dark = _rich(texts, SVG_EXPORT_THEME)
    high, steps, uses = ROWS * _ROW, [], []
    for place, frame in enumerate(shown):
        at = frame.at_s / speed(frames) / length_s if place else 0
        steps.append(f"{at:.2%}{{transform:translateY({-place * high:g}px)}}")
        uses += [
            f'<use href="#r{number[row]}" y="{place * high + line * _ROW:g}"/>'
            for line, row in enumerate(frame.rows)
            if row in number
        ]
    width = COLUMNS * _COLUMN
    return _PAGE.format(
        title=escape(title), light=light, dark=dark, edge=_EDGE, bar=_BAR,
        keyframes="".join(steps), rows="\n".join(rows), frames="\n".join(uses),
        width=round(width + 2 * _EDGE), height=round(high + _BAR + _EDGE),
        middle=width / 2 + _EDGE, inner_width=width, inner_height=high,
        length_s=length_s, end=f"{-(len(shown) - 1) * high:g}",
    )  # fmt: skip


def _rich(texts: Sequence[str], theme: TerminalTheme) -> tuple[list[str], str]:
    """Draw rows by rich; return them as groups named r0, r1, …, and the rules of their styles."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for text in texts:
        console.print(Text.from_ansi(text), no_wrap=True, crop=True, overflow="crop")
    found = console.export_svg(theme=theme, unique_id="t", code_format="{styles}\0{matrix}")
    styles, matrix = found.split("\0")
    spans: dict[int, str] = {}
    for style, place, length, row, text in _SPAN.findall(matrix):
        said = text.replace("&#160;", " ")
        span = f'<text class="{style}" y="20" {place} {length}>{said}</text>'
        spans[int(row)] = spans.get(int(row), "") + span
    rules = styles.replace(".t-", ".").replace("\n", "")
    fill, ground = theme.foreground_color, theme.background_color
    rules += f".bar{{fill:rgb{tuple(fill)}}}.ground{{fill:rgb{tuple(ground)};stroke:#888}}"
    return [f'<g id="r{row}">{spans[row]}</g>' for row in range(len(texts))], rules
