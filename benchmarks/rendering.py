"""The time of the whole process `lab render`, and its growth with the size of the config."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

from benchmarks import pairs
from benchmarks.commands import seconds
from benchmarks.configs import (
    NODES,
    PER_NODE,
    SHARING,
    Rendering,
    default,
    sharing,
    thousand_tasks,
    written,
)
from benchmarks.measure import Setting, print_progress, with_progress
from benchmarks.outcome import Outcome, Target

DEFAULT = Target("at most", 0.25)
THOUSAND = Target("at most", 0.5)
GROWTH = Target("at most", 11)
FEW, MANY = 100, 1000
"""Nodes of the two configs whose times are compared; each node has ten tasks."""

AT_ONCE = 3
"""Renderings of the two small configs for each rendering of the large one."""


def measure(setting: Setting) -> list[Outcome]:
    """Measure the default config, 1,000 tasks, and 10,000 tasks relative to 1,000."""
    return [
        _whole(
            ("render-default", "`lab render` of the default cluster.yaml"),
            "The whole process; 4 nodes and 4 tasks, GPUs pinned by index.",
            (default(setting.place), 4, DEFAULT),
            setting,
        ),
        _whole(
            ("render", "`lab render` of 1,000 tasks"),
            f"The whole process; {NODES} nodes with {PER_NODE} tasks each (a ps and 7 workers with"
            " a GPU each), GPUs pinned by index.",
            (written(setting.place, thousand_tasks()), NODES * PER_NODE, THOUSAND),
            setting,
        ),
        _growth("index", "pinned by index", setting),
        _growth("none", "without GPUs", setting),
    ]


def _whole(
    what: tuple[str, str], how: str, case: tuple[Rendering, int, Target], setting: Setting
) -> Outcome:
    """Measure one config, in pairs with an empty Python program."""
    (key, label), (rendering, tasks, target) = what, case
    print_progress(f"{label}: {setting.pairs} pairs")
    checked(rendering, tasks, setting)  # not counted: it may write bytecode
    both = pairs.interleaved(
        _measured_render(label, rendering, setting),
        lambda: seconds(setting.place, [sys.executable, "-c", "pass"]),
        setting.pairs,
    )
    taken, bare = ([pair[side] for pair in both] for side in (0, 1))
    return Outcome(
        key=key,
        what=label,
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


def _growth(mode: str, label: str, setting: Setting) -> Outcome:
    """Measure 10,000 tasks relative to 1,000, each without the fixed start."""
    print_progress(f"lab render of 10,000 tasks / 1,000, {label}: {setting.pairs} pairs")
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

    raw = pairs.interleaved(_measured_render("10,000 tasks", many, setting), small, setting.pairs)
    large_s = [large for large, _ in raw]
    start_s, few_s = ([each[side] for _, each in raw] for side in (0, 1))
    return Outcome(
        key=f"render-growth-{mode}",
        what=f"`lab render` of 10,000 tasks / of 1,000, {label}, each without the fixed start",
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
            f" share a GPU) relative to {FEW} such nodes. The start is the time of one such node."
            f" Each pair renders the small configs {AT_ONCE} times, interleaved. 10 is linear."
        ),
        details={
            "10,000 tasks": f"{statistics.median(large_s):.3f} s",
            "1,000 tasks": f"{statistics.median(few_s):.3f} s",
            "10 tasks": f"{statistics.median(start_s):.3f} s",
        },
        raw={"large_s": large_s, "small_s": few_s, "start_s": start_s},
    )


def grown(start_s: float, few_s: float, large_s: float) -> float:
    """Return the ratio of the two times, each without the start.

    Raises:
        RuntimeError: The small config took no longer than the start.
    """
    if few_s <= start_s:
        raise RuntimeError("1,000 tasks took no longer than 10; stop other programs and try again")
    return (large_s - start_s) / (few_s - start_s)


def checked(rendering: Rendering, tasks: int, setting: Setting) -> None:
    """Render once, and check the number of tasks.

    Raises:
        RuntimeError: The number is wrong.
    """
    seconds(setting.place, rendering.command)
    found = rendering.output.read_text(encoding="utf-8").count("lab.task: ")
    if found != tasks:
        raise RuntimeError(f"the compose file has {found} tasks, expected {tasks}")


def _measured_render(label: str, rendering: Rendering, setting: Setting) -> Callable[[], float]:
    return with_progress(
        label, lambda: seconds(setting.place, rendering.command), lambda found: f"{found:.3f} s"
    )
