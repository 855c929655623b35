"""Run a program that was printed in 2017 or 2018 as `python PROGRAM WORDS` would have run it.

    python -m lab.task.heritage [--faithful] [--mend] PROGRAM [WORDS]

`--faithful` leaves polls of 30 seconds, and goes on from checkpoints of earlier runs; `--mend`
mends the known faults of synchronous programs.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from lab.task.heritage import faults
from lab.task.heritage.faults import without_calls
from lab.task.heritage.importing import provide, tensorflow_1
from lab.task.heritage.missing import end, leave_without, missing, note_missing
from lab.task.heritage.sessions import refuse_leftovers, shorten_polls
from lab.task.program import ProgramError, ended_tasks
from lab.task.protocol import task_names
from lab.task.recorder import Recorder

_FAITHFUL, _MEND = "--faithful", "--mend"


def main() -> None:
    """Run it; what it raises is its own, with a line more where the fault is a known one."""
    words = sys.argv[1:]
    count = next(i for i, word in enumerate(words) if word not in {_FAITHFUL, _MEND})
    switches, sys.argv = words[:count], words[count:]
    mends = _MEND in switches
    job, _, index = os.environ.get("LAB_TASK", "worker-0").rpartition("-")
    recorder = Recorder(job, int(index))

    def tell(line: str) -> None:
        recorder.write("event", message=line)

    program = Path(sys.argv[0]).resolve()
    try:
        tree = ast.parse(program.read_bytes(), str(program))
    except OSError as error:
        sys.exit(f"error: {program} cannot be read ({error.strerror}); check the path")
    if mends:
        tree = without_calls(tree, tell)
    optimizer = _optimizer(int(index) if mends else None, tell)
    provide(program.parent, tensorflow_1({"SyncReplicasOptimizer": optimizer}))
    _number_requests(f"{job}-{index}", tell)
    # It imports TensorFlow.
    from lab.task.heritage.retry import retry_refused_steps  # noqa: PLC0415

    retry_refused_steps(tell, faults.leave)
    if _FAITHFUL not in switches:
        shorten_polls()
        # The lab has copied it for this run: by hand it is older than all that it writes.
        refuse_leftovers(program.stat().st_mtime)
    noted = note_missing()
    leave_without(noted, program.name)
    try:
        _run(program, tree)
    except ProgramError as error:
        sys.exit(f"error: {error}")
    except TypeError as error:
        what = faults.called(error, program.parent)
        if what is None:
            raise
        traceback.print_exc()
        sys.exit(f"{faults.ERROR}: {what}")
    except Exception as error:
        line = missing(error, noted, program.name)
        if line is None:
            raise
        traceback.print_exc()
        end(line)


def _run(program: Path, tree: ast.Module) -> None:
    """Run a program as the main module, with the modules beside it within its reach."""
    sys.path[0] = str(program.parent)
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = str(program)
    exec(compile(tree, str(program), "exec", dont_inherit=True), vars(module))  # noqa: S102


def _number_requests(task: str, tell: faults.Tell) -> None:
    """Keep TensorFlow from refusing steps by mistake; where that fails, only say so."""
    cluster = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})
    names = task_names(cluster)
    if task not in names:
        return  # it is alone, and sends no requests
    # It imports TensorFlow, whose libraries have to be there.
    from lab.task.heritage.request_ids import number_requests  # noqa: PLC0415

    try:
        done = number_requests(names.index(task), int(os.environ.get("LAB_ATTEMPT", "0")))
    except OSError as error:
        tell(f"request ids may repeat, and TensorFlow may refuse a step: {error}")
    else:
        if not done:
            tell("request ids may repeat, and TensorFlow may refuse a step; see docs/listings.md")


def _optimizer(mends_for: int | None, tell: faults.Tell) -> type:
    """SyncReplicasOptimizer: mended for a worker with this index, or else watched."""
    # It imports TensorFlow.
    from lab.task.heritage import synchronous  # noqa: PLC0415

    if mends_for is not None:
        return synchronous.mended(mends_for, tell)
    optimizer = synchronous.SyncReplicasOptimizer
    faults.Watch(tell, is_synchronous=lambda: optimizer.made, ended=ended_tasks).start()
    return optimizer


main()
