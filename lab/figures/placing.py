"""Where the nodes, tasks and cards of a run are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lab.figures.style import WIDE
from lab.run.directory import RunInfo

# Inches: a task, and what lies between tasks, around them, above them; a row's distance; a card.
TASK_WIDE, TASK_HIGH, GAP, PAD = 1.32, 0.62, 0.22, 0.2
HEAD, LANE, CARD = 0.42, 0.8, 0.23
_CARDS_HIGH: Final = 0.3
_ACROSS: Final = 11.2  # of the sheet's width, for nodes side by side
_MOST: Final = int((_ACROSS - 2 * PAD + GAP) / (TASK_WIDE + GAP))  # tasks side by side


@dataclass(slots=True)
class Node:
    """A node in its place.

    Attributes:
        name: Its name.
        services: Its tasks that serve.
        others: Its other tasks.
        idle: Device ids of its cards that no task uses.
        left: Inches from the left edge of the sheet.
        bottom: Inches from the lower end of the lowest row.
        below: Inches below each of its tasks, for the cards of the run, if there are any.
    """

    name: str
    services: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    left: float = 0.0
    bottom: float = 0.0
    below: float = 0.0

    @property
    def rows(self) -> list[list[str]]:
        """Its tasks, the services above the others."""
        return [row for row in (self.services, self.others) if row] or [[]]

    @property
    def wide(self) -> float:
        """Inches."""
        slots = max(1, *(len(row) for row in self.rows))
        return slots * TASK_WIDE + (slots - 1) * GAP + 2 * PAD

    @property
    def high(self) -> float:
        """Inches."""
        rows = len(self.rows)
        return HEAD + rows * (TASK_HIGH + self.below) + (rows - 1) * LANE + PAD


def node_of(info: RunInfo, task: str) -> str:
    """The node of a task, as the run says, or as its address does."""
    for row in info.tasks:
        if row.get("task") == task and isinstance(row.get("node"), str):
            return str(row["node"])
    job, _, index = task.rpartition("-")
    return str(info.cluster[job][int(index)]).rpartition(":")[0]


def cards_of(info: RunInfo, task: str) -> list[str]:
    """Device ids of a task's cards."""
    for row in info.tasks:
        if row.get("task") == task:
            return _listed(row.get("gpus"))
    return []


def _listed(cards: object) -> list[str]:
    return [str(card) for card in cards] if isinstance(cards, list | tuple) else []


def _planned(info: RunInfo) -> list[Mapping[str, Any]]:
    nodes = (info.plan or {}).get("nodes")
    return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def numbered(info: RunInfo) -> dict[str, int]:
    """A number for each card, in the plan's order."""
    planned = [gpu for node in _planned(info) for gpu in _listed(node.get("gpus"))]
    used = [gpu for task in info.task_names() for gpu in cards_of(info, task)]
    return {gpu: place for place, gpu in enumerate(dict.fromkeys(map(str, [*planned, *used])))}


def _nodes(info: RunInfo) -> list[Node]:
    found = {
        str(node["name"]): Node(str(node["name"])) for node in _planned(info) if "name" in node
    }
    used = set()
    for task in info.task_names():
        name = node_of(info, task)
        node = found.setdefault(name, Node(name))
        (node.services if info.is_service(task) else node.others).append(task)
        used.update(cards_of(info, task))
    for planned in _planned(info):
        if (name := str(planned.get("name"))) in found:
            cards = _listed(planned.get("gpus"))
            found[name].idle = [card for card in cards if card not in used]
    return list(found.values())


def _tiers(nodes: Sequence[Node]) -> list[list[Node]]:
    """Rows of nodes: those of services alone above, all others below; many are wrapped."""
    above = [node for node in nodes if node.services and not node.others]
    below = [node for node in nodes if node not in above]
    return [tier for tier in (*_wrapped(above), *_wrapped(below)) if tier]


def _wrapped(nodes: Sequence[Node]) -> list[list[Node]]:
    rows: list[list[Node]] = [[]]
    for node in (piece for whole in nodes for piece in _pieces(whole)):
        if rows[-1] and sum(each.wide + GAP for each in [*rows[-1], node]) > _ACROSS:
            rows.append([])
        rows[-1].append(node)
    return rows


def _pieces(node: Node) -> list[Node]:
    """The node; one that is wider than the sheet as several."""
    longest = max(len(node.services), len(node.others), 1)
    cuts = [slice(first, first + _MOST) for first in range(0, longest, _MOST)]
    return [
        Node(
            f"{node.name} (more)" if cut.start else node.name,
            node.services[cut],
            node.others[cut],
            [] if cut.start else node.idle,
        )
        for cut in cuts
    ]


def placed(info: RunInfo) -> tuple[list[Node], float]:
    """Every node of a run in its place, and the height of all, in inches."""
    tiers = _tiers(_nodes(info))
    for node in (node for tier in tiers for node in tier):
        node.below = _CARDS_HIGH if numbered(info) else 0.0
    high = sum(max(node.high for node in tier) for tier in tiers) + LANE * (len(tiers) - 1)
    top = high
    for tier in tiers:
        tallest = max(node.high for node in tier)
        left = (WIDE - sum(node.wide for node in tier) - GAP * (len(tier) - 1)) / 2
        for node in tier:
            node.left, node.bottom = left, top - node.high
            left += node.wide + GAP
        top -= tallest + LANE
    return [node for tier in tiers for node in tier], high
