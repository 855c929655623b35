"""How long `lab render` takes, as a whole process, and how that grows with the description."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

from benchmarks import pairs
from benchmarks.commands import seconds
from benchmarks.descriptions import (
    NODES,
    PER_NODE,
    SHARING,
    Rendering,
    default,
    sharing,
    thousand_tasks,
    written,
)
from benchmarks.measure import Setting, say, told
from benchmarks.outcome import Outcome, Target

DEFAULT = Target("at most", 0.25)
THOUSAND = Target("at most", 0.5)
GROWTH = Target("at most", 11)
FEW, MANY = 100, 1000
"""Nodes of the two descriptions whose times are compared; each has ten tasks."""

AT_ONCE = 3
"""So often the two small descriptions are rendered for each time that the large one is."""


def measure(setting: Setting) -> list[Outcome]:
    """The default description, a thousand tasks, and ten thousand beside a thousand."""
    return [
        _whole(
            ("render-default", "`lab render` of the default cluster.yaml"),
            "The whole process; 4 nodes and 4 tasks, pinned by index.",
            (default(setting.place), 4, DEFAULT),
            setting,
        ),
        _whole(
            ("render", "`lab render` of 1,000 tasks"),
            f"The whole process; {NODES} nodes with {PER_NODE} tasks each (a ps and 7 workers with"
            " a GPU each), pinned by index.",
            (written(setting.place, thousand_tasks()), NODES * PER_NODE, THOUSAND),
            setting,
        ),
        _growth("index", "pinned by index", setting),
        _growth("none", "without GPUs", setting),
    ]


def _whole(
    what: tuple[str, str], how: str, case: tuple[Rendering, int, Target], setting: Setting
) -> Outcome:
    """One description, in pairs with a Python that does nothing."""
    (key, words), (rendering, tasks, target) = what, case
    say(f"{words}: {setting.pairs} pairs")
    checked(rendering, tasks, setting)  # not counted: it may write bytecode
    both = pairs.interleaved(
        _told(words, rendering, setting),
        lambda: seconds(setting.place, [sys.executable, "-c", "pass"]),
        setting.pairs,
    )
    taken, bare = ([pair[side] for pair in both] for side in (0, 1))
    return Outcome(
        key=key,
        what=words,
        unit="s",
        target=target,
        found=pairs.estimate(taken),
        how=how,
        details={
            "`python -c pass`": f"{pairs.estimate(bare).median:.3f} s",
            "compose file": f"{rendering.output.stat().st_size / 2**20:.2f} MiB",
        },
        raw={"pass_s": bare},
    )


def _growth(mode: str, words: str, setting: Setting) -> Outcome:
    """By how much longer ten thousand tasks take than a thousand, each less the fixed start."""
    say(f"lab render of 10,000 tasks beside 1,000, {words}: {setting.pairs} pairs")
    start, few, many = (written(setting.place, sharing(nodes), mode) for nodes in (1, FEW, MANY))
    for rendering, nodes in ((start, 1), (few, FEW), (many, MANY)):
        checked(rendering, nodes * SHARING, setting)

    def small() -> tuple[float, float]:
        both = pairs.interleaved(
            lambda: seconds(setting.place, start.command),
            lambda: seconds(setting.place, few.command),
            AT_ONCE,
        )
        return statistics.mean(a for a, _ in both), statistics.mean(b for _, b in both)

    raw = pairs.interleaved(_told("10,000 tasks", many, setting), small, setting.pairs)
    large_s = [large for large, _ in raw]
    start_s, few_s = ([each[side] for _, each in raw] for side in (0, 1))
    return Outcome(
        key=f"render-growth-{mode}",
        what=f"`lab render` of 10,000 tasks / of 1,000, {words}, each less the fixed start",
        unit="ratio",
        target=GROWTH,
        found=pairs.estimate(
            [
                grown(start, few, large)
                for start, few, large in zip(start_s, few_s, large_s, strict=True)
            ]
        ),
        how=(
            f"Whole processes; {MANY:,} nodes with {SHARING} tasks each (a ps, and 9 workers that"
            f" share a card) against {FEW} such nodes; the start is what one such node takes. For"
            f" each pair the small ones are rendered {AT_ONCE} times, in turn. 10 is linear."
        ),
        details={
            "10,000 tasks": f"{statistics.median(large_s):.3f} s",
            "1,000 tasks": f"{statistics.median(few_s):.3f} s",
            "10 tasks": f"{statistics.median(start_s):.3f} s",
        },
        raw={"large_s": large_s, "small_s": few_s, "start_s": start_s},
    )


def grown(start_s: float, few_s: float, large_s: float) -> float:
    """How many times as long the large one takes as the small one, beyond the start of both.

    Raises:
        RuntimeError: The small one is not told from the start.
    """
    if few_s <= start_s:
        raise RuntimeError("1,000 tasks took no longer than 10: something else must be running")
    return (large_s - start_s) / (few_s - start_s)


def checked(rendering: Rendering, tasks: int, setting: Setting) -> None:
    """Render once, and see that all tasks are there.

    Raises:
        RuntimeError: They are not.
    """
    seconds(setting.place, rendering.command)
    found = rendering.output.read_text(encoding="utf-8").count("lab.task: ")
    if found != tasks:
        raise RuntimeError(f"{found} tasks were rendered, not {tasks}")


def _told(words: str, rendering: Rendering, setting: Setting) -> Callable[[], float]:
    return told(
        words, lambda: seconds(setting.place, rendering.command), lambda found: f"{found:.3f} s"
    )
