"""`lab ps`.

Examples:
    # the environment of ./cluster.yaml
    lab ps
    # an environment by its name, as JSON
    lab ps mnist --json
"""

from __future__ import annotations

from collections.abc import Callable

from lab.api.environments import TaskRow, ps
from lab.console import print_json
from lab.options import presents
from lab.options.shared import AsJson
from lab.run.state import explain
from lab.tables import show, table_of


@presents(ps)
def command(listed: Callable[[], list[TaskRow]], *, json: AsJson = False) -> None:
    """List the tasks of an environment, and the status of its newest run."""
    rows = listed()
    if json:
        print_json([row.to_json() for row in rows])
        return
    newest = next((row.run for row in rows), None)
    title = f"in run {newest}" if newest else "in no run"
    cells = [
        (
            task.task,
            task.node,
            task.address,
            " ".join(task.gpus) or "none",
            task.detail if task.alive else f"not running ({task.detail})",
            explain(status) if status else "waiting",
        )
        for task, status in ((row.task, row.status) for row in rows)
    ]
    show(table_of(("task", "node", "address", "gpus", "agent", title), cells))
