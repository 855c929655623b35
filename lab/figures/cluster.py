"""The cluster of a run as a picture: the box, its nodes, their tasks and cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from lab.figures.style import BLUE, GREEN, GREY, ORANGE, PALE, VERMILION, WIDE, plain, sheet, styled
from lab.figures.topology import Topology, topology_of
from lab.figures.trace import Trace
from lab.run.directory import RunInfo

NAME: Final = "cluster"
TITLE: Final = "The cluster"

_READ: Final = (
    "The outer frame is the one real machine. Each frame in it is a pseudo-node with a name and an"
    " address of its own; in it are TensorFlow's tasks (red: they serve; blue: they train), with"
    " the cards that each may use as numbered squares (green; grey: a card that no task uses)."
    " Lines join the tasks that talk to each other."
)

# Inches.
_TASK_WIDE, _TASK_HIGH, _GAP, _PAD = 1.32, 0.62, 0.22, 0.2
_HEAD, _LANE, _CARD = 0.42, 0.8, 0.2
_CARDS_A_ROW: Final = 5
_ACROSS: Final = 11.2  # of the sheet's width, for nodes side by side


@dataclass(slots=True)
class _Node:
    """A node's place, in inches from the lower left corner of the box."""

    name: str
    services: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    left: float = 0.0
    bottom: float = 0.0

    @property
    def rows(self) -> list[list[str]]:
        """Its tasks, the services above the others."""
        return [row for row in (self.services, self.others) if row] or [[]]

    @property
    def wide(self) -> float:
        slots = max(1, *(len(row) for row in self.rows))
        return slots * _TASK_WIDE + (slots - 1) * _GAP + 2 * _PAD

    @property
    def high(self) -> float:
        rows = len(self.rows)
        idle = _CARD + 0.12 if self.idle else 0.0
        return _HEAD + rows * (_TASK_HIGH + 0.3) + (rows - 1) * _LANE + _PAD + idle


@styled
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw the cluster of the first run; None where its tasks are not known."""
    info = runs[0].info
    if not info.task_names():
        return None
    tiers = _tiers(_nodes(info))
    high = sum(max(node.high for node in tier) for tier in tiers) + _LANE * (len(tiers) - 1)
    _place(tiers, high)
    figure = sheet(high + 1.1)
    figure.set_layout_engine("none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, WIDE)
    ax.set_ylim(-0.45, high + 0.65)
    ax.axis("off")
    _frame(ax, 0.15, -0.3, wide=WIDE - 0.3, high=high + 0.8, face="white")
    ax.text(0.35, high + 0.3, _box_words(info), fontsize=13, color="#444444", va="center")
    cards = _numbered(info)
    spots: dict[str, tuple[float, float]] = {}
    for node in (node for tier in tiers for node in tier):
        _node(ax, node=node, info=info, cards=cards, spots=spots)
    _links(ax, topology_of(info), spots)
    return figure


def read(_runs: Sequence[Trace]) -> str:
    """How to read the figure."""
    return _READ


def see(runs: Sequence[Trace]) -> list[str]:
    """What there is to be seen, sentence by sentence."""
    info = runs[0].info
    nodes = len({_node_of(info, task) for task in info.task_names()})
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
    cards = len(_numbered(info))
    count = f"{cards} GPU{'s' * (cards != 1)}" if cards else "no GPU is used"
    return f"one box, {count}, backend {plain(info.backend or 'unknown')}"


def _node_of(info: RunInfo, task: str) -> str:
    """The node of a task, as the run says, or as its address does."""
    for row in info.tasks:
        if row.get("task") == task and isinstance(row.get("node"), str):
            return str(row["node"])
    job, _, index = task.rpartition("-")
    return str(info.cluster[job][int(index)]).rpartition(":")[0]


def _cards_of(info: RunInfo, task: str) -> list[str]:
    for row in info.tasks:
        if row.get("task") == task and isinstance(row.get("gpus"), list | tuple):
            return [str(gpu) for gpu in row["gpus"]]
    return []


def _planned(info: RunInfo) -> list[Mapping[str, Any]]:
    nodes = (info.plan or {}).get("nodes")
    return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def _numbered(info: RunInfo) -> dict[str, int]:
    """A number for each card, in the plan's order."""
    planned = [gpu for node in _planned(info) for gpu in node.get("gpus") or ()]
    used = [gpu for task in info.task_names() for gpu in _cards_of(info, task)]
    return {gpu: place for place, gpu in enumerate(dict.fromkeys(map(str, [*planned, *used])))}


def _nodes(info: RunInfo) -> list[_Node]:
    found = {
        str(node["name"]): _Node(str(node["name"])) for node in _planned(info) if "name" in node
    }
    used = set()
    for task in info.task_names():
        name = _node_of(info, task)
        node = found.setdefault(name, _Node(name))
        (node.services if info.is_service(task) else node.others).append(task)
        used.update(_cards_of(info, task))
    for planned in _planned(info):
        if (name := str(planned.get("name"))) in found:
            found[name].idle = [
                str(gpu) for gpu in planned.get("gpus") or () if str(gpu) not in used
            ]
    return list(found.values())


def _tiers(nodes: Sequence[_Node]) -> list[list[_Node]]:
    """Rows of nodes: those of services alone above, all others below; many are wrapped."""
    above = [node for node in nodes if node.services and not node.others]
    below = [node for node in nodes if node not in above]
    return [tier for tier in (*_wrapped(above), *_wrapped(below)) if tier]


def _wrapped(nodes: Sequence[_Node]) -> list[list[_Node]]:
    rows: list[list[_Node]] = [[]]
    for node in nodes:
        # A node with very many tasks wraps these instead.
        most = int((_ACROSS - 2 * _PAD + _GAP) / (_TASK_WIDE + _GAP))
        node.others, more = node.others[:most], node.others[most:]
        if sum(each.wide + _GAP for each in [*rows[-1], node]) > _ACROSS and rows[-1]:
            rows.append([])
        rows[-1].append(node)
        while more:
            rest = _Node(f"{node.name} (more)", others=more[:most])
            more = more[most:]
            rows.append([rest])
    return rows


def _place(tiers: Sequence[Sequence[_Node]], high: float) -> None:
    top = high
    for tier in tiers:
        tallest = max(node.high for node in tier)
        left = (WIDE - sum(node.wide for node in tier) - _GAP * (len(tier) - 1)) / 2
        for node in tier:
            node.left, node.bottom = left, top - node.high
            left += node.wide + _GAP
        top -= tallest + _LANE


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
    node: _Node,
    info: RunInfo,
    cards: Mapping[str, int],
    spots: dict[str, tuple[float, float]],
) -> None:
    _frame(ax, node.left, node.bottom, wide=node.wide, high=node.high, face="#f6f6f6")
    letters = int(node.wide / 0.12)
    top = node.bottom + node.high
    ax.text(
        node.left + _PAD, top - 0.22, plain(node.name, letters), fontsize=13, fontweight="bold",
        va="center",
    )  # fmt: skip
    for place, row in enumerate(node.rows):
        bottom = top - _HEAD - (place + 1) * (_TASK_HIGH + 0.3) - place * _LANE + 0.3
        wide = len(row) * _TASK_WIDE + (len(row) - 1) * _GAP
        left = node.left + (node.wide - wide) / 2
        for task in row:
            colour = VERMILION if info.is_service(task) else BLUE
            ax.add_patch(
                Rectangle((left, bottom), _TASK_WIDE, _TASK_HIGH, facecolor=colour, zorder=4)
            )
            ax.text(
                left + _TASK_WIDE / 2, bottom + _TASK_HIGH / 2, plain(task, 12), color="white",
                ha="center", va="center", fontsize=13, zorder=5,
            )  # fmt: skip
            _cards(ax, left, bottom - 0.26, [cards[gpu] for gpu in _cards_of(info, task)], GREEN)
            spots[task] = (left + _TASK_WIDE / 2, bottom + _TASK_HIGH / 2)
            left += _TASK_WIDE + _GAP
    _cards(ax, node.left + _PAD, node.bottom + 0.1, [cards[gpu] for gpu in node.idle], PALE)


def _cards(ax: Axes, left: float, bottom: float, numbers: Sequence[int], colour: str) -> None:
    for place, number in enumerate(numbers[:_CARDS_A_ROW]):
        x = left + place * (_CARD + 0.06)
        ax.add_patch(
            Rectangle((x, bottom), _CARD, _CARD, facecolor=colour, edgecolor=GREY, zorder=4)
        )
        more = place == _CARDS_A_ROW - 1 and len(numbers) > _CARDS_A_ROW
        ax.text(
            x + _CARD / 2, bottom + _CARD / 2, "…" if more else str(number), fontsize=9,
            ha="center", va="center", zorder=5,
        )  # fmt: skip


def _links(ax: Axes, topology: Topology, spots: Mapping[str, tuple[float, float]]) -> None:
    faint = 0.9 if len(topology.links) <= 12 else 0.35  # noqa: PLR2004
    for one, two in topology.links:
        if one not in spots or two not in spots:
            continue
        (x1, y1), (x2, y2) = spots[one], spots[two]
        level = abs(y1 - y2) < _TASK_HIGH
        if level:  # side by side: from edge to edge, or in an arc below all between them
            far = abs(x2 - x1) > _TASK_WIDE + 3 * _PAD + _GAP
            side = (_TASK_WIDE / 2) * (1 if x2 > x1 else -1)
            ends = ((x1, y1 - _TASK_HIGH / 2), (x2, y2 - _TASK_HIGH / 2)) if far else (
                (x1 + side, y1), (x2 - side, y2),
            )  # fmt: skip
            bend = f"arc3,rad={-0.18 if x2 < x1 else 0.18}" if far else "arc3"
        else:
            down = _TASK_HIGH / 2 if y1 > y2 else -_TASK_HIGH / 2
            ends, bend = ((x1, y1 - down), (x2, y2 + down)), "arc3"
        ax.add_patch(
            FancyArrowPatch(
                *ends, connectionstyle=bend, arrowstyle="-|>" if topology.ring else "<|-|>",
                mutation_scale=13, color=ORANGE, alpha=faint, linewidth=1.8, zorder=3,
                shrinkA=1, shrinkB=1,
            )
        )  # fmt: skip
