"""`lab attach [RUN]`.

Examples:
    # the newest run; it continues after Ctrl-C
    lab attach
    # print its summary as JSON at the end
    lab attach last --json
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from lab.api.following import attach
from lab.api.results import Run
from lab.api.training import RunOutput
from lab.cli.run_view import followed_view, print_summary
from lab.errors import InterruptError
from lab.options import Switch, presents
from lab.run.outcome import check_succeeded
from lab.run.runner import RunInterruptedError


@presents(attach)
def command(
    attached: Callable[..., Run],
    *,
    json: Annotated[bool, Switch("print the summary as JSON, as the last line of stdout")] = False,
) -> None:
    """Follow and collect a run whose client has stopped; after Ctrl-C the run continues."""
    try:
        done = attached(output=RunOutput(followed_view), check=False)
    except RunInterruptedError as interrupt:
        run_id = interrupt.run.run_id
        raise InterruptError(
            f"detached from run {run_id}, which continues",
            f"`lab attach {run_id}` follows it again, `lab cancel` stops it",
        ) from None
    summary = done.summary
    print_summary(summary, json=json)
    check_succeeded(done.directory, summary)
