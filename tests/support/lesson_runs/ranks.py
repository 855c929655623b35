"""Runs for the lessons on PyTorch and JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lab.experiments.registry import EXPERIMENTS
from lab.lessons.measures import MeasuredRun
from lab.store.summary import ResultSummary
from tests.support.lessons import FEWER, KILLED, ONE, SLOW, Runs, measured

STEPS: Final = {"local_step": 550, "global_step": 550}
GIVEN: Final = {"hyperparameters": {"epochs": 2, "seed": 1}}


def ranks(
    experiment: str,
    *values: float,
    given: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
    **facts: Any,
) -> MeasuredRun:
    """A run of two ranks with the results of its experiment, in the order of the registry."""
    tasks = {name: {**STEPS, **(task or {})} for name in ("worker-0", "worker-1")}
    names = EXPERIMENTS[experiment].results
    results = [
        ResultSummary(name, "worker-0", value, None, None, as_expected=True)
        for name, value in zip(names, values, strict=True)
    ]
    usual: dict[str, Any] = {"global_step": 550, "steps_per_s": 59.0, "accuracy": 0.9658}
    return measured(experiment, tasks, {**GIVEN, **(given or {})}, results=results, **usual | facts)


def average_every(steps: int) -> dict[str, Any]:
    """The facts of a run of local SGD."""
    return {"hyperparameters": {"epochs": 2, "seed": 1, "average_every": steps}}


_DDP: Final = ranks("ddp", 2, 0)
_JAX: Final = ranks("jax-dp", 2, 0, steps_per_s=42.0)
_SLOW: Final = {"faults": ("slow:0.3,60s worker-1 after 50 steps",)}
_KILLED: Final = {"faults": ("kill worker-1 after 100 steps",)}
_MLP: Final = {"hyperparameters": {"model": "mlp", "seed": 1}}
_EACH: Final = {
    "worker-0": {"local_step": 548, "global_step": 1098, "staleness_sum": 420},
    "worker-1": {"local_step": 552, "global_step": 1100, "staleness_sum": 430},
}
_FRESHER: Final = {name: {**each, "staleness_sum": 290} for name, each in _EACH.items()}

RUNS: Final[Mapping[str, Mapping[str, Runs]]] = {
    "ddp": {
        "train": {"run": _DDP},
        "slow": {"normal": _DDP, "slow": ranks("ddp", 2, 0, given=_SLOW, steps_per_s=20.1)},
        "killed": {"run": ranks("ddp", 2, 0, given=_KILLED, task={"attempts": 2})},
    },
    "fsdp": {
        "train": {"run": ranks("fsdp", 795_020, 1_590_040)},
        "same": {"ddp": _DDP, "fsdp": ranks("fsdp", 795_020, 1_590_040, steps_per_s=46.0)},
    },
    "local-sgd": {
        "train": {"run": ranks("local-sgd", 55, 0, given=average_every(10))},
        "rare": {
            "often": ranks("local-sgd", 55, 0, given=average_every(10), accuracy=0.9670),
            "rare": ranks("local-sgd", 1, 0, given=average_every(1000), accuracy=0.9571),
        },
    },
    "torch-async": {
        "train": {"run": measured("torch-async")},
        "slow": {"run": measured("torch-async", given=SLOW)},
        "killed": {
            "first": measured("torch-async", given=ONE),
            "run": measured("torch-async", FEWER, ONE | KILLED, degraded=True, global_step=1211),
        },
    },
    "jax-dp": {
        "train": {"run": _JAX},
        "same": {"ddp": _DDP, "jax": _JAX},
        "killed": {
            "run": ranks(
                *("jax-dp", 2, 0),
                given=_KILLED,
                task={"global_step": 100},
                reason="worker-1: killed by SIGKILL",
            )
        },
    },
    "three-frameworks": {
        "mean": {
            "sync": ranks("sync", given=_MLP, accuracy=0.9394),
            "ddp": ranks("ddp", 2, 0, given=_MLP, accuracy=0.9395),
            "jax": ranks("jax-dp", 2, 0, given=_MLP, accuracy=0.9395),
        },
        "each": {
            "tensorflow": measured("async", _FRESHER, _MLP, global_step=1100),
            "torch": measured("torch-async", _EACH, _MLP, global_step=1100),
            "ddp": ranks("ddp", 2, 0, given=_MLP),
        },
    },
}
