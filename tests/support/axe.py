"""axe-core, which finds faults of accessibility in a page of the browser."""

from __future__ import annotations

from importlib.resources import files

from tests.support.chromium import Tab

_SCRIPT = files("axe_playwright_python").joinpath("axe.min.js")

_SERIOUS = """
axe.run().then((found) => found.violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html}: ${node.failureSummary}`)))
"""


def serious_faults(tab: Tab) -> list[str]:
    """The serious and the critical faults of the page, each with its element."""
    tab.run(_SCRIPT.read_text(encoding="utf-8"))
    found: list[str] = tab.run(_SERIOUS)
    return found
