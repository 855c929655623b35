"""The page: everything that was found, put into the template."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from lab.figures.charts import Chart
from lab.report import claims, tables
from lab.report.data import Reported
from lab.report.provenance import origins
from lab.report.verdicts import Verdicts
from lab.task.text import visible

MARKER: Final = '<meta name="generator" content="lab report">'
"""Every page has it near its beginning, and is known by it as one that may be replaced."""

_TEMPLATE: Final = Path(__file__).with_name("page.html.j2")


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure on the page.

    Attributes:
        chart: Which.
        see: What is to be seen in it, sentence by sentence.
        read: How to read it.
        image: The PNG; None where there is nothing to draw.
        wide: CSS pixels across, where there is room.
    """

    chart: Chart
    see: Sequence[str]
    read: str
    image: bytes | None
    wide: int = 0

    @property
    def address(self) -> str:
        """The image as an address that holds all of it."""
        return f"data:image/png;base64,{base64.b64encode(self.image or b'').decode()}"


def _seen(value: object) -> object:
    """A text without what would turn or hide it; what the template itself made stays as it is."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def is_a_page(begin: bytes) -> bool:
    """Whether a file that begins so is a page of the lab's."""
    return MARKER.encode() in begin


def page(runs: Sequence[Reported], figures: Sequence[Shown], judged: Verdicts | None) -> str:
    """The whole page, in HTML.

    Args:
        runs: One or several.
        figures: In their order.
        judged: The verdicts that are to stand on it, or None.
    """
    one = runs[0] if len(runs) == 1 else None
    # What comes from a run is escaped by the template, and its control characters are shown.
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_seen,
    )
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        marker=Markup(MARKER),  # noqa: S704  (our own)
        title=f"Run {one.info.run_id}" if one else f"{len(runs)} runs",
        one=one,
        runs=runs,
        key_figures=tables.key_figures(one.summary) if one else [],
        tasks=tables.tasks(one.summary) if one else None,
        results=tables.results(one.summary) if one else None,
        table=None if one else tables.runs(runs),
        groups=None if one else tables.groups(runs),
        marks=tables.marks(runs),
        judged=judged,
        elsewhere=len(set(judged.runs).difference(each.run.run_id for each in runs))
        if judged
        else 0,
        verdicts=claims.verdicts(judged.verdicts) if judged else None,
        limits=claims.notes(judged.verdicts) if judged else (),
        figures=figures,
        origins=origins(
            [each.info for each in runs], {each.info.run_id: each.learning_rate for each in runs}
        ),
    )
