"""Runs for the hour and the core lessons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lab.lessons.measures import MeasuredRun
from tests.support.lessons import (
    FEWER,
    KILLED,
    LATE,
    ONE,
    SLOW,
    Runs,
    measured,
    result,
    rounds,
)

TWO: Final = {"worker-0": {"global_step": 300}, "worker-1": {"global_step": 300}}
BACKUP: Final = {"hyperparameters": {"epochs": 1, "replicas_to_aggregate": 2}}
STEPS: Final = {"worker-0": 730, "worker-1": 183, "worker-2": 737}


def held(pause: float, staleness: int) -> MeasuredRun:
    """A run of `staleness` with 300 updates, and the sum of their staleness."""
    tasks = {
        "worker-0": {"staleness_sum": staleness, "staleness_steps": 300},
        "worker-1": {"staleness_sum": 0, "staleness_steps": 0},
        "worker-2": {"staleness_sum": 0, "staleness_steps": 0},
    }
    return measured("staleness", tasks, {"hyperparameters": {"pause": pause}})


def hello(**given: Any) -> MeasuredRun:
    """A run of `hello`."""
    tasks: dict[str, dict[str, Any]] = {f"local-{index}": {} for index in range(3)}
    return measured("hello", tasks, given, results=[result("tasks that greeted", 3)])


def ring(**facts: Any) -> MeasuredRun:
    """A run of `multiworker`."""
    results = [result("replicas compared", 2), result("replicas that differ", 0)]
    return measured("multiworker", TWO, **{"results": results, "global_step": 300, **facts})


def one_graph(**facts: Any) -> MeasuredRun:
    """A run of `in-graph`."""
    results = [result("apart from one process", 2.4e-7)]
    return measured("in-graph", {**TWO, "client-0": {}}, **{"results": results, **facts})


def towers(count: int, examples_a_second: float) -> MeasuredRun:
    """A run of `towers`."""
    results = [
        result("apart from the joined batch", 3e-7),
        result("examples a second", examples_a_second),
    ]
    given = {"hyperparameters": {"towers": count}}
    return measured("towers", {"worker-0": {}}, given, results=results, global_step=1000)


def fault(text: str, **flags: int) -> dict[str, Any]:
    """The facts of a run with a fault, and with these flags of its program."""
    return {"faults": (text,), "hyperparameters": flags}


RUNS: Final[Mapping[str, Mapping[str, Runs]]] = {
    "async": {
        "train": {"run": measured()},
        "late": {"run": measured(given=LATE)},
        "slow": {"run": measured(given=SLOW)},
    },
    "hour": {
        "first": {"run": measured()},
        "sync": {"async": measured(given=ONE), "sync": rounds()},
        "slow": {"normal": rounds(), "slow": rounds(SLOW, steps_per_s=18.0)},
        "stale": {"run": measured(given=SLOW)},
        "killed": {
            "first": measured(given=ONE),
            "run": measured(tasks=FEWER, given=ONE | KILLED, degraded=True, global_step=1211),
        },
    },
    "sync": {
        "rounds": {"run": rounds()},
        "backup": {"run": rounds(BACKUP)},
        "slow": {
            "run": measured(
                "sync",
                {name: {"local_step": steps} for name, steps in STEPS.items()},
                BACKUP | SLOW,
                global_step=550,
            )
        },
    },
    "staleness": {
        "late": {"run": held(0.03, 418)},
        "quick": {"long": held(0.03, 418), "short": held(0.001, 330)},
    },
    "hello": {
        "greet": {"run": hello()},
        "late": {"run": hello(start={"local-2": "10s"})},
    },
    "placement": {
        "devices": {
            "run": measured(
                "placement",
                {"ps-0": {}, "ps-1": {}, "worker-0": {}},
                results=[result("refused without soft placement", 1)],
            )
        }
    },
    "all-reduce": {
        "equal": {"run": ring()},
        "slow": {
            "normal": ring(steps_per_s=54.0),
            "slow": ring(given=SLOW, steps_per_s=18.0),
        },
        "killed": {
            "run": ring(
                given=fault("kill worker-1 after 100 steps", global_steps=300),
                state="failed",
                global_step=100,
            )
        },
    },
    "in-graph": {
        "one-graph": {"run": one_graph()},
        "killed": {
            "run": one_graph(
                given=fault("kill client-0 after 300 steps", global_steps=600),
                state="failed",
                global_step=301,
            )
        },
    },
    "towers": {
        "two": {"run": towers(2, 11_500.0)},
        "four": {"two": towers(2, 11_500.0), "four": towers(4, 10_900.0)},
    },
}
