"""`lab experiments`.

Examples:
    # all experiments
    lab experiments
    # the flags of one experiment
    lab experiments async
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from rich.table import Table
from rich.text import Text

from lab.base.options import Argument, verb
from lab.base.tables import table_of, wrapped
from lab.cluster.experiments import experiment_named, outside_experiments
from lab.cluster.project import default_root
from lab.protocol.experiments.experiment import FAIL, Experiment
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.runtimes import RUNTIMES
from lab.verbs.printing import Tabular, prints


@dataclass(frozen=True, slots=True, repr=False)
class Experiments(Tabular):
    """Experiments in a list, or one with its flags.

    Attributes:
        chosen: The experiments.
        one: Whether only one is asked for, so that its flags are shown.
    """

    chosen: Sequence[Experiment]
    one: bool

    def to_json(self) -> list[dict[str, object]]:
        """Return all of it as a JSON value."""
        return [_as_json(each) for each in self.chosen]

    def _shown(self) -> Sequence[Table | str]:
        if not self.one:
            return [_experiments_table(self.chosen)]
        (only,) = self.chosen
        flags = [(f"--{name}", flag.help) for name, flag in only.flags.items()]
        return [
            wrapped(table_of((only.name, only.summary), _facts(only)), 1),
            "",
            wrapped(table_of(("flag", "description"), flags), 1),
        ]


@verb
def experiments(
    experiment: Annotated[str | None, Argument("list the flags of this experiment")] = None,
) -> Experiments:
    """List the experiments, or the flags of one.

    Raises:
        InputError: No experiment has this name, or the project's `experiments.yaml` is invalid.
    """
    root = default_root()
    if experiment is not None:
        return Experiments([experiment_named(experiment, root)], one=True)
    return Experiments([*EXPERIMENTS.values(), *outside_experiments(root).values()], one=False)


def _experiments_table(experiments: Sequence[Experiment]) -> Table:
    """Return a table with two lines or more for each experiment; a name is never cut."""
    found = wrapped(table_of(("experiment", "description, requirements, lesson")), 1)
    for each in experiments:
        facts = [f"needs {' '.join(each.jobs)}", f"framework {each.runtime}"]
        lesson = [f"docs/tutorials/lessons/{each.lesson}"] if each.lesson else []
        lesson += [f"from {each.origin}"] if each.origin else []
        found.add_row(
            each.name, Text.assemble(f"{each.summary}\n", (", ".join([*facts, *lesson]), "dim"))
        )
    return found


def _facts(experiment: Experiment) -> list[tuple[str, str]]:
    facts = {
        "needs": f"a cluster with the jobs {', '.join(experiment.jobs)}",
        "framework": RUNTIMES[experiment.runtime].title,
        "from": experiment.origin,
        "program": experiment.program if experiment.origin else f"scripts/{experiment.program}",
        "defaults": " ".join(experiment.args),
        "ends": _end_condition(experiment),
        "on failure": "" if experiment.policy == FAIL else str(experiment.policy),
        "outcome": experiment.expected,
        "lesson": experiment.lesson and f"docs/tutorials/lessons/{experiment.lesson}",
    }
    return [(name, text) for name, text in facts.items() if text]


def _end_condition(experiment: Experiment) -> str:
    """Describe when a run of an experiment ends."""
    if not experiment.services:
        return "when every task has ended"
    others = [job for job in experiment.jobs if job not in experiment.services]
    then = " and ".join(experiment.services)
    return f"when every {' and '.join(others)} has ended; then each {then} ends"


_FACTS: Final = (
    "name",
    "origin",
    "program",
    "summary",
    "jobs",
    "services",
    "results",
    "expected",
    "lesson",
)


def _as_json(experiment: Experiment) -> dict[str, object]:
    return {
        **{fact: getattr(experiment, fact) for fact in _FACTS},
        "defaults": experiment.args,
        "on_failure": str(experiment.policy),
        "framework": experiment.runtime,
        "flags": {name: flag.help for name, flag in experiment.flags.items()},
    }


command = prints(experiments)
