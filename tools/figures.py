"""Draw the figures of the lessons as SVG, in English and Chinese.

    python tools/figures.py    write docs/images/*.svg and docs/zh/images/*.svg

All numbers come from `tools/rules.py`. The colours follow the page: light or dark. A figure is 400
units wide, so that its text stays readable on a narrow screen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

if __name__ == "__main__":  # a script's directory is not the repository's root
    import sys

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools import rules
from tools.figure_words import CHINESE

ROOT: Final = Path(__file__).resolve().parents[1]
WIDTH: Final = 400
SHOWN_WIDTH: Final = 500
"""Pixels on a page that is wide enough."""

STYLE: Final = """
svg { --page: #fff; --ink: #1f2328; --soft: #57606a; --edge: #d0d7de; --read: #54aeff;
  --compute: #c8d1da; --apply: #f0a030; --done: #b4f1b4; --done-edge: #1a7f37; --down: #0969da;
  --up: #bc4c00 }
@media (prefers-color-scheme: dark) { svg { --page: #0d1117; --ink: #e6edf3; --soft: #a9b4c0;
  --edge: #3d444d; --read: #1158c7; --compute: #48525f; --apply: #9a5700; --done: #1b5e2b;
  --done-edge: #3fb950; --down: #4493f8; --up: #f0883e } }
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  fill: var(--ink) }
.small { font-size: 12px } .strong { font-weight: 600 } .soft { fill: var(--soft) }
.mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 12px }
.page { fill: var(--page); stroke: var(--edge) }
.read { fill: var(--read) } .compute { fill: var(--compute) } .apply { fill: var(--apply) }
.wait { fill: var(--page); stroke: var(--soft); stroke-dasharray: 3 2 }
.drop { fill: var(--page); stroke: var(--soft) } .done { fill: var(--done) }
.mark { fill: var(--read); opacity: .25 }
.box, .got, polyline { fill: none } .box, .line, .curve, .slope { stroke: var(--soft) }
.done { stroke: var(--done-edge) } .got { stroke: var(--up); stroke-width: 2 }
.event { stroke: var(--apply) } .faint { stroke: var(--edge) } .slope { stroke-dasharray: 4 3 }
.line, .curve, .down { stroke-width: 1.4 } .up { stroke: var(--up); stroke-width: 1.8 }
.down { stroke: var(--down) } .dot { fill: var(--down) }
.head-line { fill: var(--soft) } .head-down { fill: var(--down) } .head-up { fill: var(--up) }
""".strip()

HEAD: Final = (
    '<marker id="{0}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
    ' markerUnits="userSpaceOnUse" orient="auto">'
    '<path class="head-{0}" d="M0 0 10 5 0 10z"/></marker>'
)
"""The head of an arrow whose line is of this kind."""


class Figure:
    """An SVG picture; words go through a dictionary, names and numbers do not.

    Args:
        title: What it shows, in English.
        height: Its height; the width is `WIDTH`.
        words: The translation of each English text; None: English.
    """

    def __init__(self, title: str, height: float, words: Mapping[str, str] | None = None) -> None:
        self._words, self._height, self._parts = words, height, []
        self._title = self.word(title)
        self.rect(0.5, 0.5, WIDTH - 1, height - 1, "page", r=8)

    def word(self, text: str, *values: object) -> str:
        """A text in the figure's language; `values` replace its `{}`."""
        return (text if self._words is None else self._words[text]).format(*values)

    def rect(self, x: float, y: float, w: float, h: float, kind: str, *, r: float = 3) -> None:
        """Add a rectangle with round corners."""
        place = f'x="{x:g}" y="{y:g}" width="{round(w, 1):g}" height="{h:g}" rx="{r:g}"'
        self._parts.append(f'<rect class="{kind}" {place}/>')

    def text(self, x: float, y: float, text: object, kind: str = "", at: str = "start") -> None:
        """Add a name, a number, or a text of `word`."""
        place = f'x="{round(x, 1):g}" y="{round(y, 1):g}" text-anchor="{at}"'
        self._parts.append(f'<text class="{kind}" {place}>{escape(str(text))}</text>')

    def say(self, x: float, y: float, text: str, kind: str = "", at: str = "start") -> None:
        """Add a text in the figure's language."""
        self.text(x, y, self.word(text), kind, at)

    def path(self, points: Sequence[tuple[float, float]], kind: str, arrow: bool = False) -> None:
        """Add straight lines through points, with an arrow at the end or not."""
        way = " ".join(f"{round(x, 1):g},{round(y, 1):g}" for x, y in points)
        end = f' marker-end="url(#{kind})"' if arrow else ""
        self._parts.append(f'<polyline class="{kind}" points="{way}"{end}/>')

    def circle(self, x: float, y: float, r: float, kind: str) -> None:
        """Add a circle."""
        self._parts.append(f'<circle class="{kind}" cx="{round(x, 1):g}" cy="{y:g}" r="{r:g}"/>')

    def legend(self, y: float, **kinds: str) -> None:
        """Add a line that names the meaning of each kind of bar, with equal distances."""
        for number, (kind, text) in enumerate(kinds.items()):
            x = 14 + number * (WIDTH - 14) / len(kinds)
            self.rect(round(x, 1), y - 10, 12, 12, kind)
            self.say(x + 17, y, text, "small")

    def svg(self) -> str:
        """The file."""
        size = f'viewBox="0 0 {WIDTH} {self._height:g}" width="{SHOWN_WIDTH}"'
        high = f'height="{self._height * SHOWN_WIDTH / WIDTH:g}"'
        heads = "".join(HEAD.format(kind) for kind in ("line", "down", "up"))
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {high} role="img">'
        title = f"<title>{escape(self._title)}</title>"
        return "\n".join(
            [
                head,
                title,
                f"<style>\n{STYLE}\n</style>",
                f"<defs>{heads}</defs>",
                *self._parts,
                "</svg>\n",
            ]
        )


Words = Mapping[str, str] | None
LEFT: Final = 74
"""Where a timeline begins, right of the names."""


def asynchronous(words: Words) -> str:
    """Three asynchronous workers: the phases of their steps, and the staleness of each update."""
    figure = Figure("Three workers train asynchronously, each at its own speed", 262, words)
    until, marked = 82, 2
    gradients = rules.asynchronous(rules.Speeds((9, 22, 30), read_ms=2, apply_ms=2), 2 * until)
    scale = (WIDTH - LEFT - 14) / until
    first = next(each for each in gradients if each.worker == marked)
    start, width = LEFT + first.read * scale, (first.apply - first.read) * scale
    figure.rect(round(start, 1), 14 + 36 * marked, width, 181 - 36 * marked, "mark", r=4)
    for worker in range(3):
        figure.text(12, 34 + 36 * worker, f"worker-{worker}", "mono")
    for each in gradients:
        top = 20 + 36 * each.worker
        phases = {"read": each.read, "compute": each.compute, "apply": each.apply}
        ends = [each.compute, each.apply, each.apply + 2]
        for (kind, start), end in zip(phases.items(), ends, strict=True):
            if start < until:
                left, width = LEFT + start * scale, (min(end, until) - start) * scale - 0.8
                figure.rect(round(left, 1), top, width, 20, kind, r=2)
        if each.apply < until:
            x, strong = LEFT + each.apply * scale, "small strong" if each is first else "small"
            figure.path([(x, top + 20), (x, 144)], "event")
            figure.text(x, 158, each.number + 1, strong, "middle")
            figure.text(x, 186, each.staleness, strong, "middle")
    figure.say(12, 158, "update", "small")
    figure.say(12, 186, "staleness", "small")
    figure.legend(224, read="read", compute="compute", apply="count, apply")
    others = figure.word("band: {} updates between its read and its own", first.staleness)
    figure.text(14, 248, others, "small soft")
    return figure.svg()


STRAGGLERS: Final = ((8, 8, 18, 8, 8, 8), (9, 19, 9, 9, 9, 9), (10, 10, 10, 20, 10, 10))
"""For each worker: the time of each step. Each one is slow once, at another step."""


def _synchronous_rows(figure: Figure, top: float, training: rules.Synchronous, until: int) -> None:
    scale = (WIDTH - LEFT - 14) / until
    for worker in range(len(training.compute_ms)):
        y, own = top + 28 * worker, [each for each in training.works if each.worker == worker]
        figure.text(12, y + 14, f"worker-{worker}", "mono")
        for each, following in zip(own, [*own[1:], None], strict=True):
            left, end = LEFT + each.start * scale, min(each.end, until)
            if each.start >= until:
                break
            kind = "compute" if each.accepted or each.end > until else "drop"
            figure.rect(round(left, 1), y, (end - each.start) * scale - 1, 19, kind, r=2)
            if kind == "drop":
                ends = left + (each.end - each.start) * scale - 1
                figure.path([(left, y + 19), (ends, y)], "line")
            resumed = min(following.start if following else until, until)
            if resumed > end:
                left = round(LEFT + end * scale, 1)
                figure.rect(left, y + 0.5, (resumed - end) * scale - 1.5, 18, "wait", r=2)
    y = top + 28 * len(training.compute_ms) + 11
    figure.say(12, y + 4, "update", "small")
    for number, time in enumerate([each for each in training.updates if each <= until], 1):
        figure.path([(LEFT + time * scale - 0.5, top), (LEFT + time * scale - 0.5, y)], "line")
        figure.circle(LEFT + time * scale - 0.5, y, 9, "apply")
        figure.text(LEFT + time * scale - 0.5, y + 4.5, number, "small", "middle")


def synchronous(words: Words) -> str:
    """Three synchronous workers with stragglers, without and with a backup worker."""
    title = "Three workers train synchronously; above without a backup worker, below with one"
    figure = Figure(title, 330, words)
    until = 68
    for needed, top, heading in (
        (3, 30, "each update needs all 3 gradients"),
        (2, 178, "each update needs 2 of 3 gradients"),
    ):
        training = rules.Synchronous(STRAGGLERS, needed, apply_ms=2)
        figure.say(12, top - 10, heading, "strong")
        _synchronous_rows(figure, top, training, until)
    figure.legend(314, compute="read, compute", wait="wait for a token", drop="dropped")
    figure.path([(14 + 2 * 386 / 3, 316), (26 + 2 * 386 / 3, 304)], "line")
    return figure.svg()


TOKENS: Final = rules.Synchronous(((2,) * 5, (6,) * 2, (10,) * 2), needed=2, apply_ms=1)
"""A fast, a middle and a slow worker."""

SAID: Final = {
    "add": "worker-{} adds a gradient",
    "drop": "worker-{}: token {} < {}, dropped",
    "take": "worker-{} takes a token",
    "begin": "update {} takes the gradients",
    "update": "update {} is done: {} tokens",
}
"""What a row of the figure of the queue says."""


def tokens(words: Words) -> str:
    """The one queue of tokens: a fast worker takes two tokens, and adds two gradients."""
    moments = TOKENS.moments
    begin = next(at for at, each in enumerate(moments) if each.kind == "update")
    end = max(at for at, each in enumerate(moments) if each.kind == "drop" and each.token == 1)
    rows = moments[begin : end + 1]
    height = 66 + 28 * len(rows)
    figure = Figure("The queue of tokens: a fast worker takes two in one round", height, words)
    figure.say(232, 24, "token queue", "small strong")
    figure.say(390, 24, "gradients", "small strong", "end")
    taken: set[tuple[int | None, int]] = set()
    for number, each in enumerate(rows):
        y = 34 + 28 * number
        latest = max(m.token for m in moments[: begin + number + 1] if m.kind == "begin")
        values = [each.worker, each.token, latest]
        if each.worker is None:
            values = [each.token, len(TOKENS.compute_ms)]
        said = figure.word(SAID[each.kind], *values)
        again = each.kind == "take" and (each.worker, each.token) in taken
        taken |= {(each.worker, each.token)} if each.kind == "take" else set()
        twice = again or len(set(each.gradients)) < len(each.gradients)
        figure.path([(12, y), (WIDTH - 12, y)], "faint")
        figure.text(12, y + 19, said, "small strong" if twice else "small")
        for place, token in enumerate(each.queue):
            figure.rect(234 + 26 * place, y + 4, 21, 20, "box", r=10)
            figure.text(244.5 + 26 * place, y + 18.5, token, "small", "middle")
        for place, worker in enumerate(each.gradients):
            kind = "wait" if each.kind == "begin" else "apply"
            figure.rect(331 + 30 * place, y + 4, 27, 20, kind)
            figure.text(344.5 + 30 * place, y + 18.5, f"w{worker}", "small", "middle")
    figure.say(12, height - 10, "gradients: w0 is one of worker-0", "small soft")
    return figure.svg()


CORNERS: Final = ((0, 0), (1, 0), (1, 1), (0, 1))
"""Where the four workers of the ring stand, clockwise."""


def _ring_frame(figure: Figure, left: float, top: float, frame: rules.Frame, parts: str) -> None:
    """Draw four workers with four cells each, and the part that each one sends."""
    size, across, down = 17, 103, 62
    for worker, (column, row) in enumerate(CORNERS):
        x, y = left + across * column, top + 16 + down * row
        figure.text(x, y - 5 if row == 0 else y + 31, f"worker-{worker}", "mono soft")
        for part, summed in enumerate(frame.held[worker]):
            full = len(summed) == len(CORNERS)
            received = part == frame.moves[worker - 1]
            figure.rect(x + size * part, y, size - 1, size, "done" if full else "box", r=2)
            if received:
                figure.rect(x + size * part - 0.5, y - 0.5, size, size + 1, "got", r=3)
            figure.text(x + size * (part + 0.5) - 0.5, y + 13, len(summed), "small", "middle")
        name = parts[frame.moves[worker]]
        middle, end = left + across / 2 + 34, left + across + 34
        if worker in {0, 2}:  # across
            points = [(left + 70, y + 8), (left + across - 3, y + 8)]
            figure.path(points[:: 1 if row == 0 else -1], "line", arrow=True)
            figure.text(middle, y + (4 if row == 0 else 22), name, "small strong", "middle")
        else:
            points = [(x + 34, top + 36), (x + 34, top + 75)]
            figure.path(points[:: 1 if column else -1], "line", arrow=True)
            where = end + 9 if column else left + 25
            figure.text(where, top + 60, name, "small strong", "middle")


def ring(words: Words) -> str:
    """The frames of a ring all-reduce of four workers."""
    frames, parts = rules.ring(4), "abcd"
    figure = Figure("A ring all-reduce of four workers in six frames", 510, words)
    for number, frame in enumerate(frames):
        left, top = 14 + 200 * (number % 2), 24 + 148 * (number // 2)
        phase = "reduce-scatter" if number < len(frames) / 2 else "all-gather"
        figure.text(left, top, f"{number + 1}  {phase}", "strong")
        _ring_frame(figure, left, top + 14, frame, parts)
    figure.say(14, 462, "cells: the parts a, b, c, d of a worker's gradients", "small")
    figure.say(14, 479, "number: the gradients that are summed in the part", "small")
    figure.rect(14, 488, 11, 11, "done", r=2)
    figure.say(30, 498, "the sum of all 4", "small")
    figure.rect(215, 488, 10, 11, "got", r=2)
    figure.say(230, 498, "just received", "small")
    return figure.svg()


def _parabola(figure: Figure, left: float, values: Sequence[float], together: int) -> None:
    """Draw x²/2 with the updates on it, and the line at which the gradient was computed."""
    across, up, zero, base = 66.0, 140.0, left + 92, 188.0

    def at(x: float) -> tuple[float, float]:
        return zero + across * x, base - up * x * x / 2

    figure.path([(left, base), (left + 184, base)], "faint")
    figure.path([at(-1.35 + 0.05 * each) for each in range(55)], "curve")
    if together > 1:  # the slope at x = 1, down to the axis
        figure.path([(zero + 1.3 * across, base - 0.8 * up), (zero + across / 2, base)], "slope")
    for old, new in pairwise(values):
        figure.path([at(old), at(new)], "up", arrow=True)
    for update, value in enumerate(values):
        x, y = at(value)
        figure.circle(x, round(y, 1), 3.5, "dot")
        if update in {0, 1, len(values) - 1} or together > 1:
            aside = (9, 4) if value > values[0] / 3 else (-9, -6) if value < 0 else (4, -8)
            figure.text(x + aside[0], y + aside[1], update, "small strong", "middle")


def staleness(words: Words) -> str:
    """Gradients from one point add up: the updates overshoot."""
    figure = Figure("Four updates on a parabola: gradients from one point overshoot", 258, words)
    rate, updates = 0.55, 4
    for left, together, lines in (
        (8, 1, ("each gradient is computed", "where the last update led")),
        (208, 4, ("4 gradients are computed", "at the same point, 0")),
    ):
        values = rules.descent(rate, together, updates)
        figure.say(left + 6, 24, lines[0], "small strong")
        figure.say(left + 6, 40, lines[1], "small strong")
        _parabola(figure, left, values, together)
        loss = figure.word("loss {:.2f} → {:.3f}", values[0] ** 2 / 2, values[-1] ** 2 / 2)
        figure.text(left + 6, 212, loss, "small")
        effective = (1 - values[together]) / values[0]
        steps = figure.word("{} from one point: rate {:.2f}", together, effective)
        figure.text(left + 6, 230, steps, "small")
    figure.text(
        14, 249, figure.word("learning rate {}; the numbers count the updates", rate), "small soft"
    )
    return figure.svg()


MLP: Final = {
    "weights1": 784 * 500 * 4,
    "biases1": 500 * 4,
    "weights2": 500 * 10 * 4,
    "biases2": 40,
}
"""The variables of the blog's network, in the order of their creation, with their bytes."""


def placement(words: Words) -> str:
    """Variables on the parameter servers in turn, operations on each worker."""
    figure = Figure("Variables on two parameter servers, operations on two workers", 350, words)
    for index, held in enumerate(rules.round_robin(MLP, 2)):
        left = 12 + 194 * index
        figure.rect(left, 12, 182, 110, "box", r=6)
        figure.text(left + 10, 31, f"/job:ps/task:{index}", "mono strong")
        figure.say(left + 10, 48, "device CPU:0", "small soft")
        for row, (name, size) in enumerate(held.items()):
            figure.rect(left + 8, 57 + 28 * row, 166, 23, "read", r=4)
            figure.text(left + 15, 73 + 28 * row, name, "mono")
            figure.text(left + 167, 73 + 28 * row, f"{size:,} B", "small", "end")
    for index in range(2):
        left = 12 + 194 * index
        figure.rect(left, 192, 182, 104, "box", r=6)
        figure.text(left + 10, 211, f"/job:worker/task:{index}", "mono strong")
        figure.say(left + 10, 228, "device GPU:0, else CPU:0", "small soft")
        for row, name in enumerate(("forward: logits, loss", "backward: gradients")):
            figure.rect(left + 8, 236 + 28 * row, 166, 23, "compute", r=4)
            figure.say(left + 15, 252 + 28 * row, name, "small")
        for server in range(2):
            near, far = 60 + 194 * index + 40 * server, 60 + 194 * server + 40 * index
            figure.path([(far, 124), (near, 190)], "down", arrow=True)
            figure.path([(near + 14, 190), (far + 14, 124)], "up", arrow=True)
    figure.legend(318, read="variables", compute="operations")
    for left, kind, text in ((14, "down", "read parameters"), (207, "up", "send gradients")):
        figure.path([(left, 334), (left + 13, 334)], kind, arrow=True)
        figure.say(left + 17, 338, text, "small")
    return figure.svg()


FIGURES: Final[dict[str, Callable[[Words], str]]] = {
    "async": asynchronous,
    "sync": synchronous,
    "tokens": tokens,
    "ring": ring,
    "overshoot": staleness,
    "placement": placement,
}
"""The figures by the names of their files."""


def files() -> dict[Path, str]:
    """All files with their content."""
    languages: dict[str, Words] = {"docs/images": None, "docs/zh/images": CHINESE}
    return {
        ROOT / folder / f"{name}.svg": draw(words)
        for folder, words in languages.items()
        for name, draw in FIGURES.items()
    }


if __name__ == "__main__":
    for path, content in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, "utf-8")
