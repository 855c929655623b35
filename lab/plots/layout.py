"""Where the nodes, tasks and devices of a cluster are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from lab.plots.shape import ClusterShape, TaskShape
from lab.plots.style import safe_label

# Inches: what lies between tasks and around them; a node's name; the space for links; a device.
GAP, PAD, HEAD, LANE = 0.22, 0.2, 0.42, 0.8
TASK_HIGH, CHIP_WIDE, CHIP_HIGH, CHIP_GAP = 0.8, 0.56, 0.36, 0.06
NAME_SIZE, TASK_SIZE, LINE_SIZE = 13, 12, 10  # points: a node's name, a task's, its other lines

MOST_TASKS: Final = 60
"""So many tasks are drawn, and so many nodes without one of them."""

MOST_CHIPS: Final = 18
"""So many devices of a task, or unused ones of a node, are drawn."""

_LETTERS: Final = 48  # the longest task name that TensorFlow and a config allow
_NARROWEST: Final = 3 * CHIP_WIDE + 2 * CHIP_GAP
_ACROSS: Final = 11.3  # for nodes side by side, unless a single one is wider


@dataclass(slots=True)
class Node:
    """A node in its place.

    Attributes:
        name: Its name.
        task_wide: Inches across each of its tasks.
        services: Its tasks that serve.
        others: Its other tasks.
        idle: Device ids of its GPUs that no task uses.
        left: Inches from the left end of the widest row.
        bottom: Inches from the lower end of the lowest row.
    """

    name: str
    task_wide: float
    services: list[TaskShape] = field(default_factory=list)
    others: list[TaskShape] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    left: float = 0.0
    bottom: float = 0.0

    @property
    def rows(self) -> list[list[TaskShape]]:
        """Its tasks as they lie below each other, the services above the others."""
        most = max(1, int((_ACROSS - 2 * PAD + GAP) / (self.task_wide + GAP)))
        return [
            tasks[first : first + most]
            for tasks in (self.services, self.others)
            for first in range(0, len(tasks), most)
        ]

    @property
    def wide(self) -> float:
        """Inches."""
        slots = max([1, *map(len, self.rows)])
        tasks = slots * self.task_wide + (slots - 1) * GAP
        return 2 * PAD + max(tasks, text_wide(label(self.name), NAME_SIZE, bold=True))

    @property
    def high(self) -> float:
        """Inches."""
        rows = sum(self._above(row) + self._row_high(row) for row in self.rows)
        return HEAD + self._idle_high + rows + PAD

    @property
    def _idle_high(self) -> float:
        high = chips_high(len(self.idle), self.wide - 2 * PAD)
        return high + GAP if high else 0.0

    def _above(self, row: Sequence[TaskShape]) -> float:
        """Inches between a row and the one above it."""
        if row == self.rows[0]:
            return 0.0
        return LANE if row[0] == self.others[0] else GAP

    def _row_high(self, row: Sequence[TaskShape]) -> float:
        chips = max(chips_high(1 + len(task.gpus), self.task_wide) for task in row)
        return TASK_HIGH + chips

    def spots(self) -> Iterator[tuple[TaskShape, float, float]]:
        """Each task with the left and upper end of its place, in inches."""
        top = self.bottom + self.high - HEAD - self._idle_high
        for row in self.rows:
            top -= self._above(row)
            wide = len(row) * (self.task_wide + GAP) - GAP
            left = self.left + (self.wide - wide) / 2
            for place, task in enumerate(row):
                yield task, left + place * (self.task_wide + GAP), top
            top -= self._row_high(row)


def label(text: str) -> str:
    """A name as it is drawn."""
    return safe_label(text, _LETTERS)


def text_wide(text: str, size: float, *, bold: bool = False) -> float:
    """Inches across a text, without its being drawn."""
    font = FontProperties(size=size, weight="bold" if bold else "normal")
    points, _, _ = text_to_path.get_text_width_height_descent(text, font, False)
    return 1.04 * float(points) / 72  # a PNG rounds each letter to whole pixels


def chips_a_row(wide: float) -> int:
    """How many devices stand side by side in so many inches."""
    return max(1, int((wide + CHIP_GAP + 1e-9) / (CHIP_WIDE + CHIP_GAP)))


def chips_high(count: int, wide: float) -> float:
    """Inches for so many devices, and the space above each."""
    return -(-min(count, MOST_CHIPS) // chips_a_row(wide)) * (CHIP_HIGH + CHIP_GAP)


def arrange(shape: ClusterShape) -> tuple[list[Node], float, float]:
    """Every node of a cluster in its place, and the width and height of all, in inches."""
    tiers = _tiers(_nodes(shape))
    wides = [sum(node.wide + GAP for node in tier) - GAP for tier in tiers]
    highs = [max(node.high for node in tier) for tier in tiers]
    wide, high = max(wides), sum(highs) + LANE * (len(tiers) - 1)
    top = high
    for tier, across, tallest in zip(tiers, wides, highs, strict=True):
        left = (wide - across) / 2
        for node in tier:
            node.left, node.bottom = left, top - node.high
            left += node.wide + GAP
        top -= tallest + LANE
    return [node for tier in tiers for node in tier], wide, high


def _nodes(shape: ClusterShape) -> list[Node]:
    tasks = shape.tasks[:MOST_TASKS]
    wide = max([_NARROWEST, *(_task_wide(task) for task in tasks)])
    used = {gpu for task in shape.tasks for gpu in task.gpus}
    busy = {task.node for task in tasks}
    found = {}
    for place, (name, gpus) in enumerate(shape.nodes.items()):
        if name in busy or place < MOST_TASKS:
            found[name] = Node(name, wide, idle=[gpu for gpu in gpus if gpu not in used])
    for task in tasks:
        node = found[task.node]
        (node.services if task.serves else node.others).append(task)
    return list(found.values())


def _task_wide(task: TaskShape) -> float:
    lines = (text_wide(label(text), LINE_SIZE) for text in (task.device_name, task.address))
    return 0.16 + max(*lines, text_wide(label(task.name), TASK_SIZE, bold=True))


def _tiers(nodes: Sequence[Node]) -> list[list[Node]]:
    """Rows of nodes: those of services alone above, all others below; many are wrapped."""
    above = [node for node in nodes if node.services and not node.others]
    below = [node for node in nodes if node not in above]
    return [tier for tier in (*_wrapped(above), *_wrapped(below)) if tier]


def _wrapped(nodes: Sequence[Node]) -> list[list[Node]]:
    rows: list[list[Node]] = [[]]
    for node in nodes:
        if rows[-1] and sum(each.wide + GAP for each in [*rows[-1], node]) - GAP > _ACROSS:
            rows.append([])
        rows[-1].append(node)
    return rows
