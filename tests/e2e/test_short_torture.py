"""A few runs of the torture harness, with fixed seeds: real programs, real faults from outside."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests import engine as engines
from tests.conditions import lacking
from tests.torture.case import COMPOSE, LOCAL, NEW_FROM, Case, Fault, Policy, draw
from tests.torture.judging import judge
from tests.torture.running import Tools, lacks, ran
from tests.torture.session import flags_of_run

pytestmark = pytest.mark.tensorflow

SEEDS = {Fault.KILL: 4537, Fault.HELPER: 171, Fault.FREEZE: 315, Fault.LATE: 889}
CONTAINER_KILLED = 1469


def torture(case: Case, tools: Tools) -> None:
    with ran(case, tools) as run:
        found = judge(case, run.seen)
        assert (found.verdict, found.details) == ("ok", ()), case.line()


@pytest.mark.parametrize(("fault", "seed"), SEEDS.items(), ids=str)
def test_on_processes(fault: Fault, seed: int) -> None:
    case = draw(seed)
    assert (case.fault, case.backend, case.policy) == (fault, LOCAL, Policy.FAIL)
    torture(case, Tools(flags_of_run()))


@pytest.mark.parametrize("fault", [Fault.ROOM, Fault.READ_ONLY, Fault.NODE_CLOCK], ids=str)
def test_volumes_and_clocks_that_fail(fault: Fault) -> None:
    tools = Tools(flags_of_run())
    case = next(
        case
        for case in map(draw, count(NEW_FROM))
        if (case.fault, case.backend, case.workers) == (fault, LOCAL, 2)
        and (case.experiment, case.policy) == ("async", Policy.FAIL)
        and (case.when.at_step or 0) > 50  # no checkpoint is saved at that step
    )
    if why_not := lacks(case, tools.flags):
        lacking(why_not)
    torture(case, tools)


@pytest.fixture
def on_containers(engine: engines.Engine, image: str) -> Iterator[Tools]:
    import docker  # noqa: PLC0415  (only where there is an engine)

    names = ("DOCKER_HOST", "DOCKER_CONFIG", "PATH")
    variables = {n: engine.environment[n] for n in names if n in engine.environment}
    client = docker.from_env(environment=dict(engine.environment))
    yield Tools(flags_of_run(), variables, client)
    client.close()


@pytest.mark.engine
def test_on_containers(on_containers: Tools) -> None:
    case = draw(CONTAINER_KILLED)
    assert (case.fault, case.backend, case.policy) == (Fault.AGENT, COMPOSE, Policy.FAIL)
    torture(case, on_containers)
