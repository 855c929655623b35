"""The HTML page of a report: its texts and tables, and the template that shows them."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from lab.base import formatting
from lab.base.formatting import counted, listed
from lab.base.statistics import mean_of
from lab.base.text import clipped, visible
from lab.runner.store.measures import OF_RUN, OF_TASK, quantities
from lab.runner.store.run_info import RunInfo
from lab.runner.store.settings import command
from lab.runner.store.summary import TaskSummary
from lab.runner.store.task_progress import FINAL_LOSS
from lab.study.comparison import describe
from lab.study.plots.charts import Chart
from lab.study.report.loader import ReportRun
from lab.study.reproduce.verdicts import Evaluation

MARKER: Final = '<meta name="generator" content="lab report">'
"""The mark of a report; a file that has it near the beginning may be replaced."""
_TEMPLATE: Final = Path(__file__).with_name("page.html.j2")
_SCRIPT: Final = Path(__file__).with_name("full_screen.js")
_LETTERS: Final = 60  # the longest name in a title
_EQUAL: Final = 0.02  # lengths that differ by less are equal: workers end a few steps apart


@dataclass(frozen=True, slots=True)
class PlotSection:
    """A figure on the page.

    Attributes:
        chart: The chart.
        caption: How to read it.
        data_uri: The PNG as a data URI; "" if there is nothing to draw.
        width: Its width in CSS pixels.
    """

    chart: Chart
    caption: str = ""
    data_uri: str = ""
    width: int = 0


def is_a_page(begin: bytes) -> bool:
    """Return whether a file with this beginning is a report."""
    return MARKER.encode() in begin


def page(
    runs: Sequence[ReportRun], figures: Sequence[PlotSection], judged: Evaluation | None
) -> str:
    """Return the page as HTML.

    Args:
        runs: One or several runs.
        figures: The figures, in their order.
        judged: The results of claims for the page, or None.
    """
    # The template escapes the texts of a run, and shows their control characters.
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_seen,
    )
    environment.globals |= {
        name: getattr(formatting, name)
        for name in ("band", "between", "compared", "figure", "number", "pace", "rate", "seconds",
                     "share", "whole")
    } | {"quantities": partial(quantities, OF_RUN), "task_table": task_table}  # fmt: skip
    environment.globals |= {"mean": mean, "tenths": partial(formatting.fixed, decimals=1)}
    script = _SCRIPT.read_text(encoding="utf-8")
    ids = {each.info.run_id for each in runs}
    names = dict.fromkeys(run.group for run in runs)
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        marker=Markup(MARKER),  # noqa: S704  (a constant)
        script=Markup(script),  # noqa: S704  (our own file)
        # The page's policy allows this script only.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        one=runs[0] if len(runs) == 1 else None,
        runs=runs,
        groups={name: [run for run in runs if run.group == name] for name in names},
        title=title(runs),
        unequal=not has_equal_lengths(runs),
        clusters=clusters(runs),
        judged=judged,
        elsewhere=len(judged.run_ids - ids) if judged else 0,
        figures=figures,
        final_loss=FINAL_LOSS,
        origins=provenance(runs),
    )


def title(runs: Sequence[ReportRun]) -> str:
    """Return the title of a report: its experiments, and the names or the number of its runs."""
    named = [clipped(each.name, _LETTERS) for each in runs]
    experiments = listed(
        dict.fromkeys(clipped(each.info.spec.experiment, _LETTERS) for each in runs)
    )
    if len(runs) == 1:
        name = named[0]
        return f"{experiments}: {name}" if runs[0].label else f"{experiments}: run {name}"
    labels = dict.fromkeys(clipped(each.prefix or each.label, _LETTERS) for each in runs)
    names = listed(labels) if all(labels) else ""
    if not names and len(runs) == 2:  # noqa: PLR2004
        names = listed(named)
    return f"{experiments}: {counted(len(runs), 'run')}" + (f" ({names})" if names else "")


def has_equal_lengths(runs: Sequence[ReportRun]) -> bool:
    """Return whether all runs saw about as many images, or made as many global steps.

    Updates of different experiments use different numbers of images. Unknown lengths are ignored.
    """
    images = [seen for each in runs if (seen := _images(each))]
    steps = [float(step) for each in runs if (step := each.summary.global_step)]
    lengths = images if len(images) == len(runs) else steps
    return not lengths or max(lengths) - min(lengths) <= _EQUAL * max(lengths)


def _images(run: ReportRun) -> float:
    """Return the images that all workers saw, also after their last step records; 0: unknown."""
    workers = run.trace.workers
    recorded = run.trace.of("local_step").groupby("task")["value"].max().sum()
    made = sum(task.local_step or 0 for task in run.summary.tasks if task.task in workers)
    factor = made / recorded if 0 < recorded < made else 1.0
    return max((factor * seen for seen in run.trace.values("seen")), default=0.0)


def task_table(tasks: Sequence[TaskSummary]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and the cells of a run's tasks, with the measures that one of them has."""
    figures = [list(quantities(OF_TASK, task)) for task in tasks]
    columns = ["task", "node", "state", ">global step"]
    rows = [
        [
            task.task,
            task.node,
            f"{task.state} ({task.cause})" if task.cause else task.state,
            formatting.whole(task.global_step),
        ]
        for task in tasks
    ]
    for measured in zip(*figures, strict=True):
        texts = [formatting.figure(value, unit) for _, value, unit in measured]
        if any(texts):
            columns.append(f">{measured[0][0]}")
            for row, text in zip(rows, texts, strict=True):
                row.append(text)
    return columns, rows


@dataclass(frozen=True, slots=True)
class ShownTask:
    """A task on the page.

    Attributes:
        name: Its name: `worker-1`.
        address: Its `host:port`.
        gpus: Device ids of its GPUs.
        serves: Whether it serves the others, and ends when they have ended.
    """

    name: str
    address: str
    gpus: Sequence[str]
    serves: bool


def clusters(runs: Sequence[ReportRun]) -> dict[str, dict[str, list[ShownTask]]]:
    """Return the tasks of each node; runs with the same cluster are shown once, by their names."""
    shown: dict[str, dict[str, list[ShownTask]]] = {}
    names: dict[str, list[str]] = {}
    for run in runs:
        if run.info.cluster:
            names.setdefault(str((run.info.cluster, run.info.tasks)), []).append(run.name)
    for run in runs:
        same = names.get(str((run.info.cluster, run.info.tasks)), [])
        if same and same[0] == run.name:
            shown[", ".join(same)] = _nodes(run.info)
    return shown


def _nodes(info: RunInfo) -> dict[str, list[ShownTask]]:
    rows = {row.get("task"): row for row in info.tasks}
    nodes: dict[str, list[ShownTask]] = {}
    for job, addresses in info.cluster.items():
        for index, address in enumerate(addresses):
            row = rows.get(f"{job}-{index}", {})
            node = row.get("node", address.rpartition(":")[0])
            task = ShownTask(
                f"{job}-{index}", address, row.get("gpus", ()), job in info.spec.services
            )
            nodes.setdefault(node, []).append(task)
    return nodes


def _seen(value: object) -> object:
    """Return a text with visible control characters; markup of the template is unchanged."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def mean(values: Iterable[float | None], form: Callable[[float], str]) -> str:
    """Return the mean of the known values with its 95% interval, as text; "" without values."""
    found = mean_of(values)
    return "" if found is None else found.text(form)


def provenance(runs: Sequence[ReportRun]) -> dict[str, str | dict[str, str]]:
    """Return what made the runs, as `lab compare` describes it, with their commands.

    Returns:
        Name to one text if it is the same for all runs, else to the text of each run's name.
    """
    facts = {run.name: _facts(run) for run in runs}
    found: dict[str, str | dict[str, str]] = {}
    for name in dict.fromkeys(chain.from_iterable(facts.values())):
        texts = {run: each.get(name, "") for run, each in facts.items()}
        several = set(texts.values())
        found[name] = several.pop() if len(several) == 1 else texts
    return found


def _facts(run: ReportRun) -> dict[str, str]:
    info, rate = run.info, run.learning_rate
    started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(info.started_unix))
    made = {"run": info.run_id} if run.label else {}
    made |= {"command": command(info), "started": started} | describe(run.run, info)
    if rate is not None:
        made.setdefault("learning_rate", f"{rate:g}")
    return made
