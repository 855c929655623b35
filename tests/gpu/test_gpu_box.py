"""`make test-gpu`: trainings on real GPUs. Its steps are in `steps.py`; it writes `page.py`'s page.

A step that cannot run is skipped as `not run`, with the reason. Without a GPU the page stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.gpu import page
from tests.gpu.host import Host, look
from tests.gpu.steps import STAGES, STEPS, Shown, Step
from tests.gpu.trainings import FAILED, NOT_RUN
from tests.support.commands import ROOT

EVIDENCE = ROOT / "docs/evidence"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return look(tmp_path_factory.mktemp("gpu"))


@dataclass
class Report:
    """What each step has shown; the page is written after each, so that nothing is lost."""

    folder: Path
    before: page.Stages
    shown: dict[Step, Shown] = field(default_factory=dict)

    def add(self, step: Step, shown: Shown, host: Host) -> None:
        self.shown[step] = shown
        after = page.record(self.shown, host.inventory, self.before)
        if after != self.before:
            page.write(self.folder, after)


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest) -> Report:
    folder = Path(request.config.getoption("--evidence") or EVIDENCE)
    return Report(folder, page.read(folder) if (folder / f"{page.NAME}.json").exists() else {})


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.stage}: {step.name}")
def test_step(step: Step, host: Host, report: Report) -> None:
    shown = step.execute(host)
    report.add(step, shown, host)
    faults = [f"{row.check}: {row.detail}" for row in shown.rows if row.result == FAILED]
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)
    if all(row.result == NOT_RUN for row in shown.rows):
        pytest.skip(f"{STAGES[step.stage]}: not run: {shown.rows[0].detail}")
