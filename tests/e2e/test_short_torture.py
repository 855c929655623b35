"""A few runs of the torture harness, with fixed seeds: real programs, real faults from outside."""

from __future__ import annotations

from itertools import count

import pytest

from tests.support.conditions import lacking
from tests.torture.case import COMPOSE, FAIL, LOCAL, UNTIMED, Case, Fault, draw
from tests.torture.running import lacks, run

pytestmark = pytest.mark.tensorflow


def case_of(fault: Fault, backend: str, experiment: str) -> Case:
    """The first small one, in which no checkpoint is saved at the step of the fault."""
    return next(
        case
        for case in map(draw, count())
        if (case.fault, case.backend, case.experiment) == (fault, backend, experiment)
        and (case.workers, case.ps, case.policy) == (2, 1, FAIL)
        and (fault in UNTIMED or (case.at_step or 0) > 50)
    )


def torture(case: Case) -> None:
    if why_not := lacks(case.backend, case.fault):
        lacking(why_not)
    judgement = run(case)
    assert (judgement.missed, judgement.faults) == (False, []), case


@pytest.mark.parametrize(
    ("fault", "experiment"),
    [(Fault.ROOM, "async"), (Fault.NODE_CLOCK, "sync")],
    ids=str,
)
def test_on_processes(fault: Fault, experiment: str) -> None:
    torture(case_of(fault, LOCAL, experiment))


@pytest.mark.engine
@pytest.mark.usefixtures("image")
def test_on_containers() -> None:
    torture(case_of(Fault.AGENT, COMPOSE, "sync"))
