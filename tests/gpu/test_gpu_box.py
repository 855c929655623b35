"""`make test-gpu`: trainings on real GPUs. Its steps are in `steps.py`; it writes `page.py`'s page.

A step that cannot run is skipped as `not run`, with the reason. Without a GPU the page stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.gpu import page
from tests.gpu.host import Host, look
from tests.gpu.steps import STAGES, STEPS, Step
from tests.gpu.trainings import FAILED, NOT_RUN, Row
from tests.support.commands import ROOT

FOLDER = ROOT / "docs/evidence"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return look(tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="module")
def shown() -> dict[Step, Sequence[Row]]:
    """What each step has shown so far."""
    return {}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.stage}: {step.name}")
def test_step(step: Step, host: Host, shown: dict[Step, Sequence[Row]]) -> None:
    shown[step] = step.execute(host)
    before = page.read(FOLDER)
    after = page.record(shown, host.inventory, before)
    if after != before:  # after each step, so that nothing is lost
        page.write(FOLDER, after)
    faults = [f"{row.check}: {row.detail}" for row in shown[step] if row.result == FAILED]
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)
    if all(row.result == NOT_RUN for row in shown[step]):
        pytest.skip(f"{STAGES[step.stage]}: not run: {shown[step][0].detail}")
