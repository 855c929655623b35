"""`lab experiments`."""

from __future__ import annotations

import difflib
from typing import Annotated

from lab.cli.arguments import Word
from lab.cli.options import AsJson
from lab.cli.output import print_json
from lab.errors import InputError
from lab.run.cells import show, table_of
from lab.task.experiments import EXPERIMENTS, Experiment


def command(
    *,
    experiment: Annotated[str | None, Word("one of them, to see its flags")] = None,
    json: AsJson = False,
) -> None:
    """List the experiments, or the flags of one."""
    if experiment is not None and experiment not in EXPERIMENTS:
        near = difflib.get_close_matches(experiment, EXPERIMENTS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(f"no experiment {experiment!r}", f"{hint}see `lab experiments`")
    chosen = list(EXPERIMENTS.values()) if experiment is None else [EXPERIMENTS[experiment]]
    if json:
        print_json([_as_json(each) for each in chosen])
    elif experiment is None:
        rows = [(each.name, " ".join(each.jobs), each.summary) for each in chosen]
        show(table_of(("experiment", "needs", "what it does"), rows))
    else:
        flags = [(f"--{name}", flag.help) for name, flag in chosen[0].flags.items()]
        show(table_of((f"flags of {experiment}", "what they do"), flags))


def _as_json(experiment: Experiment) -> dict[str, object]:
    return {
        "name": experiment.name,
        "program": experiment.program,
        "summary": experiment.summary,
        "jobs": experiment.jobs,
        "flags": {name: flag.help for name, flag in experiment.flags.items()},
    }
