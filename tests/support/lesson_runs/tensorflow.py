"""Runs for the lessons on TensorFlow's other ways to train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lab.experiments.policy import OnFailure
from lab.lessons.measures import MeasuredRun
from lab.store.summary import ResultSummary
from tests.support.lessons import Runs, measured


def run_of(
    experiment: str,
    tasks: Mapping[str, Mapping[str, Any]],
    results: Mapping[str, float] | None = None,
    fault: str = "",
    flags: Mapping[str, Any] | None = None,
    **facts: Any,
) -> MeasuredRun:
    """A run with results, by name, and flags of its program."""
    reported = [
        ResultSummary(name, "", value, None, None, as_expected=True)
        for name, value in (results or {}).items()
    ]
    given: dict[str, Any] = {"hyperparameters": flags or {}}
    if fault:
        given |= {"faults": (fault,)}
    restart = facts.pop("restart", False)
    if restart:
        given |= {"on_failure": OnFailure.RESTART}
    return measured(experiment, tasks, given, results=reported, **facts)


def linear(w: float, b: float, steps: int) -> MeasuredRun:
    """A client that trains a line."""
    tasks: dict[str, Mapping[str, Any]] = {"worker-0": {}, "worker-1": {}}
    tasks |= {"client-0": {"local_step": steps, "global_step": steps}}
    flags = {"steps": steps, "learning_rate": 0.1}
    return run_of("linear", tasks, {"w": w, "b": b}, flags=flags, global_step=steps)


def divided(batch_size: int, steps_per_s: float) -> MeasuredRun:
    """A model on two tasks."""
    tasks: dict[str, Mapping[str, Any]] = {"worker-0": {}, "worker-1": {}}
    tasks |= {"client-0": {"local_step": 2000, "global_step": 2000}}
    flags = {"batch_size": batch_size, "global_steps": 2000}
    results = {"apart from one process": 0.0}
    return run_of("model-parallel", tasks, results, flags=flags, steps_per_s=steps_per_s)


def coordinated(
    counted: int = 2000, starts: int = 1, every: int = 100, fault: str = "", rate: float = 105.0
) -> MeasuredRun:
    """A chief that gives steps to two workers."""
    tasks: dict[str, Mapping[str, Any]] = {"chief-0": {"local_step": 2000, "global_step": counted}}
    tasks |= {"ps-0": {}, "worker-0": {}, "worker-1": {"attempts": starts}}
    flags = {"global_steps": 2000, "record_every": every}
    results = {"steps counted": counted}
    return run_of(
        "coordinator", tasks, results, fault, flags, global_step=counted, steps_per_s=rate
    )


def evaluated(count: int, every: float = 2.0, fault: str = "") -> MeasuredRun:
    """A training whose checkpoints are tested."""
    tasks: dict[str, Mapping[str, Any]] = {"ps-0": {}}
    tasks |= {name: {"local_step": 2000, "global_step": 4000} for name in ("worker-0", "worker-1")}
    tasks |= {"evaluator-0": {"accuracy": 0.7184}}
    flags = {"global_steps": 4000, "checkpoint_every": every}
    results = {"checkpoints evaluated": count, "accuracy gained": 0.6021}
    return run_of("evaluator", tasks, results, fault, flags)


def estimated() -> MeasuredRun:
    """An Estimator with parameter servers."""
    tasks: dict[str, Mapping[str, Any]] = {"chief-0": {"local_step": 646}, "ps-0": {}, "ps-1": {}}
    tasks |= {"evaluator-0": {"accuracy": 0.672}}
    tasks |= {f"worker-{index}": {"local_step": 786} for index in range(3)}
    results = {"RunConfig fields that differ": 0, "checkpoints evaluated": 3}
    flags = {"global_steps": 3000}
    return run_of("estimator", tasks, results, flags=flags, global_step=3004)


def mirrored() -> MeasuredRun:
    """An Estimator with a strategy."""
    tasks = {"worker-0": {"local_step": 3000, "global_step": 3000}}
    results = {"RunConfig fields that differ": 0, "replicas built": 2}
    flags = {"global_steps": 3000, "batch_size": 100}
    return run_of("estimator-mirrored", tasks, results, flags=flags)


def ring(starts: int = 1, fault: str = "") -> MeasuredRun:
    """Two ranks of Horovod."""
    facts = {"local_step": 1375, "global_step": 1375, "attempts": starts}
    tasks = {"worker-0": facts, "worker-1": facts}
    results = {"ranks compared": 2, "ranks that differ": 0}
    flags = {"epochs": 5, "global_steps": 0}
    again = bool(fault)
    return run_of("horovod", tasks, results, fault, flags, global_step=1375, restart=again)


def quick(
    experiment: str, epochs: int, steps_per_s: float, wall_s: float, stale: float, **flags: Any
) -> MeasuredRun:
    """A training of three workers, each with 550 steps an epoch."""
    steps = 550 * epochs
    facts = {"local_step": steps, "global_step": 3 * steps, "staleness_steps": steps}
    facts |= {"staleness_sum": round(stale * steps)}
    tasks = {f"worker-{index}": facts for index in range(3)}
    given = {"epochs": epochs, **flags}
    speed = {"steps_per_s": steps_per_s, "wall_s": wall_s}
    return run_of(experiment, tasks, flags=given, global_step=3 * steps, **speed)


RUNS: Final[Mapping[str, Mapping[str, Runs]]] = {
    "linear": {
        "train": {"run": linear(2.0, 10.0, 200)},
        "few": {"run": linear(1.88049, 9.99867, 40)},
    },
    "model-parallel": {
        "divide": {"run": divided(100, 98.0)},
        "small": {"large": divided(100, 98.0), "small": divided(20, 133.0)},
    },
    "coordinator": {
        "train": {"run": coordinated()},
        "killed": {"run": coordinated(2001, 2, fault="kill worker-1 after 500 steps")},
        "wait": {"seldom": coordinated(), "often": coordinated(every=1, rate=60.0)},
    },
    "evaluator": {
        "test": {"run": evaluated(12)},
        "often": {"seldom": evaluated(12), "often": evaluated(30, 0.5)},
        "paused": {
            "normal": evaluated(12),
            "paused": evaluated(10, fault="pause:10s evaluator-0 after 1000 steps"),
        },
    },
    "speed": {
        "plain": {"run": quick("async", 1, 170.0, 19.5, 1.07)},
        "fast": {
            "plain": quick("async", 1, 170.0, 19.5, 1.07),
            "fast": quick("async-fast", 10, 1770.0, 22.9, 1.84, steps_per_call=110, one_core=True),
        },
        "down": {
            "fast": quick("async-fast", 10, 1770.0, 22.9, 1.84, steps_per_call=110, one_core=True),
            "down": quick("async-fast", 2, 432.0, 19.0, 1.98, steps_per_call=1, one_core=False),
        },
    },
    "estimator": {"train": {"run": estimated()}, "strategy": {"run": mirrored()}},
    "horovod": {
        "ring": {"run": ring()},
        "killed": {"run": ring(2, "kill worker-1 after 100 steps")},
    },
}
