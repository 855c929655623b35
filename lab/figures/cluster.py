"""The cluster of a run as a picture: the box, its nodes, their tasks and cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.path import Path

from lab.figures.placing import (
    CARD,
    GAP,
    HEAD,
    LANE,
    PAD,
    TASK_HIGH,
    TASK_WIDE,
    Node,
    cards_of,
    node_of,
    numbered,
    placed,
)
from lab.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    VERMILION,
    WIDE,
    plain,
    sheet,
    styled,
)
from lab.figures.topology import Topology, topology_of
from lab.figures.trace import Trace
from lab.run.directory import RunInfo

NAME: Final = "cluster"
TITLE: Final = "The cluster"

_READ: Final = (
    "The outer frame is the one real machine. Each frame in it is a pseudo-node with a name and an"
    " address of its own; in it are TensorFlow's tasks (orange: they serve; blue: they train), with"
    " the cards that each may use as numbered squares (green; grey: a card that no task uses)."
    " Lines join the tasks that talk to each other."
)
_CARDS_A_ROW: Final = 5
_FEW: Final = 12  # links that can be told apart at full strength

_Spot = tuple[float, float]


@styled
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw the cluster of the first run; None where its tasks are not known."""
    info = runs[0].info
    if not info.task_names():
        return None
    nodes, high = placed(info)
    figure = sheet(high + 1.1)
    figure.set_layout_engine("none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, WIDE)
    ax.set_ylim(-0.45, high + 0.65)
    ax.axis("off")
    _frame(ax, 0.15, -0.3, wide=WIDE - 0.3, high=high + 0.8, face="white")
    ax.text(0.35, high + 0.3, _box_words(info), fontsize=13, color="#444444", va="center")
    cards = numbered(info)
    spots: dict[str, _Spot] = {}
    for node in nodes:
        _node(ax, node=node, info=info, cards=cards, spots=spots)
    floors = {task: node.bottom for node in nodes for task in (*node.services, *node.others)}
    _links(ax, topology_of(info), spots, floors)
    return figure


def read(_runs: Sequence[Trace]) -> str:
    """How to read the figure."""
    return _READ


def see(runs: Sequence[Trace]) -> list[str]:
    """What there is to be seen, sentence by sentence."""
    info = runs[0].info
    nodes = len({node_of(info, task) for task in info.task_names()})
    count = len(info.task_names())
    shape = (
        f"{count} task{'s' * (count > 1)} on {nodes} pseudo-node{'s' * (nodes > 1)} of one machine."
    )
    same = {str(run.info.cluster) for run in runs}
    found = [f"{shape} {topology_of(info).words}"]
    if len(same) > 1:
        found.append("The other runs' clusters differ from this one, the first run's.")
    return found


def _box_words(info: RunInfo) -> str:
    cards = len(numbered(info))
    count = f"{cards} GPU{'s' * (cards != 1)}" if cards else "no GPU is used"
    return f"one box, {count}, backend {plain(info.backend or 'unknown')}"


def _frame(ax: Axes, left: float, bottom: float, *, wide: float, high: float, face: str) -> None:
    """A frame with round corners, its size in inches."""
    style = "round,pad=0,rounding_size=0.1"
    ax.add_patch(
        FancyBboxPatch(
            (left, bottom),
            wide,
            high,
            boxstyle=style,
            edgecolor=GREY,
            facecolor=face,
            linewidth=1.5,
        )
    )


def _node(
    ax: Axes,
    *,
    node: Node,
    info: RunInfo,
    cards: Mapping[str, int],
    spots: dict[str, _Spot],
) -> None:
    _frame(ax, node.left, node.bottom, wide=node.wide, high=node.high, face="#f6f6f6")
    letters = int(node.wide / 0.12)
    top = node.bottom + node.high
    ax.text(
        node.left + PAD, top - 0.22, plain(node.name, letters), fontsize=13, fontweight="bold",
        va="center",
    )  # fmt: skip
    for place, row in enumerate(node.rows):
        bottom = top - HEAD - (place + 1) * (TASK_HIGH + node.below) - place * LANE + node.below
        wide = len(row) * TASK_WIDE + (len(row) - 1) * GAP
        left = node.left + (node.wide - wide) / 2
        for task in row:
            colour = VERMILION if info.is_service(task) else BLUE
            ax.add_patch(
                Rectangle((left, bottom), TASK_WIDE, TASK_HIGH, facecolor=colour, zorder=4)
            )
            ax.text(
                left + TASK_WIDE / 2, bottom + TASK_HIGH / 2, plain(task, 12), color="white",
                ha="center", va="center", fontsize=13, zorder=5,
            )  # fmt: skip
            _cards(ax, left, bottom - 0.29, [cards[gpu] for gpu in cards_of(info, task)], GREEN)
            spots[task] = (left + TASK_WIDE / 2, bottom + TASK_HIGH / 2)
            left += TASK_WIDE + GAP
    idle = [cards[gpu] for gpu in node.idle]
    room = min(len(idle), _CARDS_A_ROW) * (CARD + 0.06)
    _cards(ax, node.left + node.wide - PAD - room, top - 0.34, idle, PALE)


def _cards(ax: Axes, left: float, bottom: float, numbers: Sequence[int], colour: str) -> None:
    for place, number in enumerate(numbers[:_CARDS_A_ROW]):
        x = left + place * (CARD + 0.06)
        ax.add_patch(Rectangle((x, bottom), CARD, CARD, facecolor=colour, edgecolor=GREY, zorder=4))
        more = place == _CARDS_A_ROW - 1 and len(numbers) > _CARDS_A_ROW
        ax.text(
            x + CARD / 2,
            bottom + CARD / 2,
            "…" if more else str(number),
            fontsize=10,
            fontweight="bold",
            color="white" if colour == GREEN else BLACK,
            ha="center",
            va="center",
            zorder=5,
        )


def _links(
    ax: Axes, topology: Topology, spots: Mapping[str, _Spot], floors: Mapping[str, float]
) -> None:
    """Draw who talks to whom; `floors` are the lower ends of the tasks' nodes."""
    known = [(one, two) for one, two in topology.links if {one, two} <= spots.keys()]
    for one, two in known:
        start, end = spots[one], spots[two]
        if topology.ring and _is_far(start, end):
            way: dict[str, Any] = {"path": _around(start, end, floors[one])}
        else:
            ends, bend = _way(start, end)
            way = {"posA": ends[0], "posB": ends[1], "connectionstyle": bend}
        ax.add_patch(
            FancyArrowPatch(
                **way,
                arrowstyle="-|>" if topology.ring else "<|-|>",
                mutation_scale=13,
                color=ORANGE,
                alpha=0.9 if len(known) <= _FEW else 0.35,
                linewidth=1.8,
                zorder=3,
                shrinkA=1,
                shrinkB=1,
            )
        )


def _is_far(start: _Spot, end: _Spot) -> bool:
    """Whether others lie between two tasks of the same height."""
    (x1, y1), (x2, y2) = start, end
    return abs(y1 - y2) < TASK_HIGH and abs(x2 - x1) > TASK_WIDE + 2 * PAD + GAP + 0.01


def _around(start: _Spot, end: _Spot, floor: float) -> Path:
    """From one task to another below all that lies between them, and below their nodes."""
    (x1, y1), (x2, y2) = start, end
    aside, low, under = 0.4 * TASK_WIDE, TASK_HIGH / 2, floor - 0.15
    spots = [(x1 + aside, y1 - low), (x1 + aside, under), (x2 + aside, under)]
    return Path([*spots, (x2 + aside, y2 - low)])


def _way(start: _Spot, end: _Spot) -> tuple[tuple[_Spot, _Spot], str]:
    """Where the line between two tasks begins and ends, and how it bends."""
    (x1, y1), (x2, y2) = start, end
    if abs(y1 - y2) >= TASK_HIGH:  # one above the other
        down = TASK_HIGH / 2 if y1 > y2 else -TASK_HIGH / 2
        return ((x1, y1 - down), (x2, y2 + down)), "arc3"
    right = 1 if x2 > x1 else -1
    if not _is_far(start, end):  # side by side
        side = right * TASK_WIDE / 2
        return ((x1 + side, y1), (x2 - side, y2)), "arc3"
    # Below all that lie between; to the right of the cards, which begin at the left.
    aside, low = 0.4 * TASK_WIDE, TASK_HIGH / 2
    return ((x1 + aside, y1 - low), (x2 + aside, y2 - low)), f"arc3,rad={0.16 * right}"
