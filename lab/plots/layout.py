"""The positions and sizes of the nodes, tasks and devices in the figure of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from lab.plots.shape import ClusterShape, TaskShape
from lab.plots.style import safe_label

# Inches: the gap between tasks, the padding, the height of a node's name, the space for links.
GAP, PAD, HEAD, LANE = 0.22, 0.2, 0.42, 0.8
TASK_HEIGHT, CHIP_WIDTH, CHIP_HEIGHT, CHIP_GAP = 0.8, 0.56, 0.36, 0.06
NAME_SIZE, TASK_SIZE, LINE_SIZE = 13, 12, 10  # points: a node's name, a task's, its other lines

MOST_TASKS: Final = 60
"""The most tasks that are drawn, and the most nodes without a drawn task."""

MOST_CHIPS: Final = 18
"""The most devices of a task, or unused GPUs of a node, that are drawn."""

_LETTERS: Final = 48  # the longest task name that TensorFlow and a config allow
_NARROWEST: Final = 3 * CHIP_WIDTH + 2 * CHIP_GAP
_ACROSS: Final = 11.3  # inches for a row of nodes, unless a single node is wider


@dataclass(slots=True)
class Node:
    """A node with its position.

    Attributes:
        name: Its name.
        task_width: The width of each task, in inches.
        services: Its parameter servers and other services.
        others: Its other tasks.
        idle: Device ids of its GPUs that no task uses.
        left: Inches from the left end of the widest row.
        bottom: Inches from the lower end of the lowest row.
    """

    name: str
    task_width: float
    services: list[TaskShape] = field(default_factory=list)
    others: list[TaskShape] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    left: float = 0.0
    bottom: float = 0.0

    @property
    def rows(self) -> list[list[TaskShape]]:
        """Its tasks row by row from above, the services first."""
        most = max(1, int((_ACROSS - 2 * PAD + GAP) / (self.task_width + GAP)))
        return [
            tasks[first : first + most]
            for tasks in (self.services, self.others)
            for first in range(0, len(tasks), most)
        ]

    @property
    def width(self) -> float:
        """The width, in inches."""
        slots = max([1, *map(len, self.rows)])
        tasks = slots * self.task_width + (slots - 1) * GAP
        return 2 * PAD + max(tasks, text_width(label(self.name), NAME_SIZE, bold=True))

    @property
    def height(self) -> float:
        """The height, in inches."""
        rows = sum(self._above(row) + self._row_height(row) for row in self.rows)
        return HEAD + self._idle_height + rows + PAD

    @property
    def _idle_height(self) -> float:
        height = chips_height(len(self.idle), self.width - 2 * PAD)
        return height + GAP if height else 0.0

    def _above(self, row: Sequence[TaskShape]) -> float:
        """Inches between a row and the one above it."""
        if row == self.rows[0]:
            return 0.0
        return LANE if row[0] == self.others[0] else GAP

    def _row_height(self, row: Sequence[TaskShape]) -> float:
        chips = max(chips_height(1 + len(task.gpus), self.task_width) for task in row)
        return TASK_HEIGHT + chips

    def spots(self) -> Iterator[tuple[TaskShape, float, float]]:
        """Each task with its left and upper edge, in inches."""
        top = self.bottom + self.height - HEAD - self._idle_height
        for row in self.rows:
            top -= self._above(row)
            width = len(row) * (self.task_width + GAP) - GAP
            left = self.left + (self.width - width) / 2
            for place, task in enumerate(row):
                yield task, left + place * (self.task_width + GAP), top
            top -= self._row_height(row)


def label(text: str) -> str:
    """The drawn form of a name."""
    return safe_label(text, _LETTERS)


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """The width of a text in inches, computed without drawing it."""
    font = FontProperties(size=size, weight="bold" if bold else "normal")
    points, _, _ = text_to_path.get_text_width_height_descent(text, font, False)
    return 1.04 * float(points) / 72  # a PNG rounds each letter to whole pixels


def chips_per_row(width: float) -> int:
    """The number of devices that fit side by side into `width` inches."""
    return max(1, int((width + CHIP_GAP + 1e-9) / (CHIP_WIDTH + CHIP_GAP)))


def chips_height(count: int, width: float) -> float:
    """The height of `count` devices in inches, with the space above each row."""
    return -(-min(count, MOST_CHIPS) // chips_per_row(width)) * (CHIP_HEIGHT + CHIP_GAP)


def arrange(shape: ClusterShape) -> tuple[list[Node], float, float]:
    """Place every node of a cluster; return the nodes, and their width and height in inches."""
    tiers = _tiers(_nodes(shape))
    widths = [sum(node.width + GAP for node in tier) - GAP for tier in tiers]
    heights = [max(node.height for node in tier) for tier in tiers]
    width, height = max(widths), sum(heights) + LANE * (len(tiers) - 1)
    top = height
    for tier, across, tallest in zip(tiers, widths, heights, strict=True):
        left = (width - across) / 2
        for node in tier:
            node.left, node.bottom = left, top - node.height
            left += node.width + GAP
        top -= tallest + LANE
    return [node for tier in tiers for node in tier], width, height


def _nodes(shape: ClusterShape) -> list[Node]:
    tasks = shape.tasks[:MOST_TASKS]
    width = max([_NARROWEST, *(_task_width(task) for task in tasks)])
    used = {gpu for task in shape.tasks for gpu in task.gpus}
    busy = {task.node for task in tasks}
    found = {}
    for place, (name, gpus) in enumerate(shape.nodes.items()):
        if name in busy or place < MOST_TASKS:
            found[name] = Node(name, width, idle=[gpu for gpu in gpus if gpu not in used])
    for task in tasks:
        node = found[task.node]
        (node.services if task.serves else node.others).append(task)
    return list(found.values())


def _task_width(task: TaskShape) -> float:
    lines = (text_width(label(text), LINE_SIZE) for text in task.lines)
    return 0.16 + max(*lines, text_width(label(task.name), TASK_SIZE, bold=True))


def _tiers(nodes: Sequence[Node]) -> list[list[Node]]:
    """Rows of nodes: nodes with only services above, all others below; long rows are wrapped."""
    above = [node for node in nodes if node.services and not node.others]
    below = [node for node in nodes if node not in above]
    return [tier for tier in (*_wrapped(above), *_wrapped(below)) if tier]


def _wrapped(nodes: Sequence[Node]) -> list[list[Node]]:
    rows: list[list[Node]] = [[]]
    for node in nodes:
        if rows[-1] and sum(each.width + GAP for each in [*rows[-1], node]) - GAP > _ACROSS:
            rows.append([])
        rows[-1].append(node)
    return rows
