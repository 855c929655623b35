"""The cluster as a picture: the host, its nodes, their tasks and devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.path import Path

from lab.formatting import counted
from lab.frameworks import FRAMEWORKS, TENSORFLOW
from lab.plots import style
from lab.plots.data import Trace
from lab.plots.layout import (
    CHIP_GAP,
    CHIP_HEIGHT,
    CHIP_WIDTH,
    GAP,
    HEAD,
    LINE_SIZE,
    MOST_CHIPS,
    MOST_TASKS,
    NAME_SIZE,
    PAD,
    TASK_HEIGHT,
    TASK_SIZE,
    Node,
    arrange,
    chips_height,
    chips_per_row,
    label,
    text_width,
)
from lab.plots.shape import ClusterShape, Topology, of_run, topology_of

_READ: Final = (
    "The outer frame is the one real host. Each frame in it is a pseudo-node with its {framework}"
    " tasks (orange: parameter servers and other services; blue: all others). Each task shows its"
    " name in the lab{names}. Below it are the devices that the task sees. {framework} counts"
    " GPUs from 0 in every task. The number after # is the host's GPU, counted node by node. Pale:"
    " a GPU that no task uses. Lines join the tasks that communicate."
)
_NODE: Final = "#f6f6f6"
_FEW: Final = 12  # links that can be distinguished at full opacity

_EDGE: Final[dict[str, Any]] = {"edgecolor": style.GREY, "linewidth": 1.5}

_Chip = tuple[str, str]  # the two lines of a device's text; the second may be empty


@dataclass(frozen=True, slots=True)
class _Spot:
    """The position of a task, in inches.

    Attributes:
        left: The left edge of the task's rectangle.
        right: Its right edge.
        top: Its upper edge.
        bottom: The lower edge of the task's devices.
        floor: The lower edge of its node.
    """

    left: float
    right: float
    top: float
    bottom: float
    floor: float

    @property
    def middle(self) -> float:
        """The horizontal middle, in inches."""
        return (self.left + self.right) / 2

    @property
    def aside(self) -> float:
        """A position right of the middle, where a line does not meet one from above."""
        return self.middle + 0.4 * (self.right - self.left)

    def is_level(self, other: _Spot) -> bool:
        """Whether both tasks are in the same row."""
        return abs(self.top - other.top) < TASK_HEIGHT

    def is_far(self, other: _Spot) -> bool:
        """Whether both tasks are in the same row, with others between them."""
        apart = max(self.left, other.left) - min(self.right, other.right)
        return self.is_level(other) and apart > 2 * PAD + GAP + 0.01


def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw the cluster of the first run; None if its tasks are not known."""
    shape = of_run(runs[0].info)
    return draw_shape(shape) if shape.tasks else None


@style.settings()
def draw_shape(shape: ClusterShape) -> Figure:
    """Draw a cluster of at least one task."""
    nodes, width, height = arrange(shape)
    host = _host_label(shape)
    more = max(0.0, text_width(host, NAME_SIZE) - width)
    left, right = -0.35 - more / 2, width + 0.35 + more / 2
    figure = style.new_figure(height + 1.1, right - left)
    figure.set_layout_engine("none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_xlim(left, right)
    ax.set_ylim(-0.45, height + 0.65)
    ax.axis("off")
    _frame(ax, left + 0.15, -0.3, width=right - left - 0.3, height=height + 0.8, face="white")
    ax.text(left + 0.35, height + 0.3, host, fontsize=NAME_SIZE, color="#444444", va="center")
    numbers = shape.numbers
    spots: dict[str, _Spot] = {}
    for node in nodes:
        _node(ax, node, numbers, spots)
    _links(ax, _topology(shape), spots)
    return figure


def caption(runs: Sequence[Trace]) -> str:
    """How to read the figure."""
    framework = FRAMEWORKS[runs[0].info.spec.framework]
    server = ", its name in TensorFlow and the address of its server"
    names = server if framework is TENSORFLOW else " and its address"
    return _READ.format(framework=framework.title, names=names)


def describe(runs: Sequence[Trace]) -> list[str]:
    """Describe the cluster of these runs, a sentence each."""
    shape = of_run(runs[0].info)
    nodes = len({task.node for task in shape.tasks})
    tasks = counted(len(shape.tasks), "task")
    size = f"{tasks} on {counted(nodes, 'pseudo-node')} of one host."
    same = {str(run.info.cluster) for run in runs}
    found = [f"{size} {_topology(shape).traffic}"]
    if len(same) > 1:
        found.append("This is the cluster of the first run. The other runs' clusters differ.")
    return found


def _topology(shape: ClusterShape) -> Topology:
    """The links of the drawn tasks only: all pairs of 10,000 tasks take minutes."""
    return topology_of(replace(shape, tasks=shape.tasks[:MOST_TASKS]))


def _host_label(shape: ClusterShape) -> str:
    gpus = len(shape.numbers)
    parts = ["one host", counted(gpus, "GPU") if gpus else "no GPU is used"]
    if shape.backend:
        parts.append(f"backend {style.safe_label(shape.backend)}")
    if len(shape.tasks) > MOST_TASKS:
        parts.append(f"{MOST_TASKS} of {len(shape.tasks):,} tasks are drawn")
    name = f"{style.safe_label(shape.name)}: " if shape.name else ""
    return name + ", ".join(parts)


def _frame(ax: Axes, left: float, bottom: float, *, width: float, height: float, face: str) -> None:
    """Draw a frame with round corners; its size is in inches."""
    form = "round,pad=0,rounding_size=0.1"
    frame = FancyBboxPatch((left, bottom), width, height, boxstyle=form, facecolor=face, **_EDGE)
    ax.add_patch(frame)


def _node(ax: Axes, node: Node, numbers: Mapping[str, int], spots: dict[str, _Spot]) -> None:
    _frame(ax, node.left, node.bottom, width=node.width, height=node.height, face=_NODE)
    left, top = node.left + PAD, node.bottom + node.height
    ax.text(
        left, top - 0.22, label(node.name), fontsize=NAME_SIZE, fontweight="bold", va="center",
        zorder=5, bbox={"facecolor": _NODE, "edgecolor": "none", "pad": 1},
    )  # fmt: skip
    idle = [("unused", f"#{numbers[gpu]}") for gpu in node.idle]
    _chips(ax, left, top - HEAD + CHIP_GAP, node.width - 2 * PAD, idle, colour=style.PALE)
    for task, left, top in node.spots():
        width, face = node.task_width, style.VERMILION if task.serves else style.BLUE
        middle = left + width / 2
        _box(ax, left, top, width=width, height=TASK_HEIGHT, face=face)
        _text(ax, middle, top - 0.17, label(task.name), size=TASK_SIZE, ink="white", weight="bold")
        for text, down in zip(task.lines, (0.42, 0.63), strict=False):
            _text(ax, middle, top - down, label(text), size=LINE_SIZE, ink="white")
        chips = [("CPU:0", ""), *((f"GPU:{n}", f"#{numbers[g]}") for n, g in enumerate(task.gpus))]
        bottom = _chips(ax, left, top - TASK_HEIGHT, width, chips, colour=style.GREEN)
        spots[task.name] = _Spot(left, left + width, top, bottom, node.bottom)


def _chips(
    ax: Axes, left: float, top: float, width: float, chips: Sequence[_Chip], *, colour: str
) -> float:
    """Draw up to MOST_CHIPS devices below `top`, with a count of the rest; return the lower end."""
    shown = list(chips)
    if len(shown) > MOST_CHIPS:
        shown[MOST_CHIPS - 1 :] = [(f"{len(shown) - MOST_CHIPS + 1:,}", "more")]
    for place, (first, second) in enumerate(shown):
        row, column = divmod(place, chips_per_row(width))
        x = left + column * (CHIP_WIDTH + CHIP_GAP)
        y = top - row * (CHIP_HEIGHT + CHIP_GAP) - CHIP_GAP
        face = colour if second.startswith("#") else "white"
        ink = "white" if face == style.GREEN else style.BLACK
        _box(ax, x, y, width=CHIP_WIDTH, height=CHIP_HEIGHT, face=face, edge=style.GREY)
        text = f"{first}\n{second}".strip()
        _text(ax, x + CHIP_WIDTH / 2, y - CHIP_HEIGHT / 2, text, size=8.5, ink=ink)
    return top - chips_height(len(shown), width)


def _box(
    ax: Axes, left: float, top: float, *, width: float, height: float, face: str, edge: str = "none"
) -> None:
    at = (left, top - height)
    ax.add_patch(Rectangle(at, width, height, facecolor=face, edgecolor=edge, zorder=4))


def _text(
    ax: Axes, x: float, y: float, text: str, *, size: float, ink: str, weight: str = "normal"
) -> None:
    ax.text(
        x, y, text, fontsize=size, color=ink, fontweight=weight, ha="center", va="center",
        zorder=5,
    )  # fmt: skip


def _links(ax: Axes, topology: Topology, spots: Mapping[str, _Spot]) -> None:
    """Draw the links between tasks."""
    known = [(one, two) for one, two in topology.links if {one, two} <= spots.keys()]
    looks: dict[str, Any] = {
        "arrowstyle": "-|>" if topology.ring else "<|-|>",
        "mutation_scale": 13,
        "color": style.ORANGE,
        "alpha": 0.9 if len(known) <= _FEW else 0.35,
        "linewidth": 1.8,
        "zorder": 3,
        "shrinkA": 1,
        "shrinkB": 1,
    }
    for one, two in known:
        way = _way(spots[one], spots[two], ring=topology.ring)
        ax.add_patch(FancyArrowPatch(**way, **looks))


def _way(start: _Spot, end: _Spot, *, ring: bool) -> dict[str, Any]:
    """The line between two tasks, as arguments of an arrow."""
    if not start.is_level(end):
        first, last = (start.bottom, end.top) if start.top > end.top else (start.top, end.bottom)
        return {"posA": (start.middle, first), "posB": (end.middle, last)}
    right = end.left > start.left
    if not start.is_far(end):  # side by side
        y = start.top - TASK_HEIGHT / 2
        first, last = (start.right, end.left) if right else (start.left, end.right)
        return {"posA": (first, y), "posB": (last, y)}
    # Below all tasks between them.
    ends = (start.aside, start.bottom), (end.aside, end.bottom)
    if ring:  # and below their nodes
        under = start.floor - 0.15
        return {"path": Path([ends[0], (start.aside, under), (end.aside, under), ends[1]])}
    bend = f"arc3,rad={'' if right else '-'}0.16"
    return {"posA": ends[0], "posB": ends[1], "connectionstyle": bend}
