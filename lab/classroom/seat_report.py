"""The newest run of a seat, printed as JSON inside the seat's container.

`lab class status` runs it as `python -P -m lab.classroom.seat_report`. `-P` keeps the current
directory out of Python's path.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from lab.classroom.run_report import RunReport
from lab.errors import LabError
from lab.run.state import state_under_way
from lab.store.directory import DEFAULT_RUNS_DIR, RunStatus, infos


def newest_run(store: Path) -> RunReport | None:
    """Return the newest readable run of a run store; None if there is none."""
    for run, info in reversed(infos(store).items()):
        if info is None:
            continue
        with suppress(LabError, OSError):
            recorded = RunStatus.recorded(run).statuses
            state = info.state if info.state.ended else state_under_way(info, recorded)
            statuses = recorded.values()
            steps = [each.global_step for each in statuses if each.global_step is not None]
            stepped = [each.stepped_unix for each in statuses if each.stepped_unix is not None]
            now = time.time()
            return RunReport(
                run_id=info.run_id,
                experiment=info.spec.experiment,
                state=str(state),
                age_s=max(0.0, now - info.started_unix),
                global_step=max(steps, default=None),
                since_step_s=max(0.0, now - max(stepped)) if stepped else None,
            )
    return None


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(newest_run(Path.home() / DEFAULT_RUNS_DIR)).decode())
