"""Run a program printed in 2017 or 2018, as `python PROGRAM ARGUMENTS` ran it then.

    python -m lab.task.tf1 [--quiet] [--faithful] [--mend] PROGRAM [ARGUMENTS]
    python -m lab.task.tf1 [--quiet] [--faithful] [--mend] -m MODULE [ARGUMENTS]

`--faithful` keeps the polling interval of 30 seconds and the wait of two minutes at the end, and
resumes from checkpoints of earlier runs.
`--mend` fixes the known faults of synchronous programs.
`--quiet` is that of `lab.task.own`.
"""

from __future__ import annotations

import ast
import os
import sys
import traceback
import warnings
from pathlib import Path

from absl import flags

from lab.protocol.volume.run_spec import module_files
from lab.task.flag_completion import QUIET, complete_flags, restore_flags
from lab.task.own import mnist
from lab.task.own.main_module import run_file, run_module
from lab.task.request_ids import number_requests, place_of
from lab.task.sdk.program import ProgramError, ended_tasks
from lab.task.sdk.recorder import Recorder
from lab.task.tf1 import known_bugs, numpy_1, sessions
from lab.task.tf1.import_hook import provide

_FAITHFUL, _FIX = "--faithful", "--mend"
_SWITCHES = {QUIET, _FAITHFUL, _FIX}


def main() -> None:
    """Run the program; add a last line to its output if it fails by a known fault."""
    arguments = sys.argv[1:]
    count = next(i for i, argument in enumerate(arguments) if argument not in _SWITCHES)
    switches, (name, *arguments) = arguments[:count], arguments[count:]
    module = arguments.pop(0) if name == "-m" else ""
    fix_faults = _FIX in switches
    recorder = Recorder.here()

    def notify(line: str) -> None:
        recorder.write("event", message=line)

    program = Path(name).resolve()
    folder, program = _find_module(module) if module else (program.parent, program)
    try:
        tree = ast.parse(program.read_bytes(), str(program))
    except OSError as error:
        sys.exit(f"error: {program} cannot be read ({error.strerror}); check the path")
    if fix_faults:
        tree = known_bugs.uncall_operations(tree, notify)
    mnist.provide()  # before TensorFlow imports Keras
    _silence_deprecations()
    _provide_tensorflow(folder, _optimizer_class(recorder.task if fix_faults else "", notify))
    complete_flags(os.environ, is_quiet=QUIET in switches)
    number_requests(place_of(os.environ), notify)
    _change_sessions(program, faithful=_FAITHFUL in switches)
    noted = known_bugs.record_missing_files(program.name)
    try:
        if module:
            run_module(module, arguments, tree)
        else:
            run_file(str(program), arguments, tree)
    except ProgramError as error:
        sys.exit(f"error: {error}")
    except Exception as error:
        line = known_bugs.called_operation_line(error, folder)
        line = line or known_bugs.missing_file_line(error, noted, program.name)
        if line is None:
            raise
        traceback.print_exc()
        known_bugs.exit_with_line(line)


def _find_module(module: str) -> tuple[Path, Path]:
    """Find a module without an import, which would run its packages.

    Returns:
        The directory of the program's modules, and the program.
    """
    for entry in sys.path:
        folder = Path(entry).resolve()
        for file in module_files(module):
            if (folder / file).is_file():
                return folder, folder / file
    sys.exit(f"error: no module {module}; check its name")


def _silence_deprecations() -> None:
    """Print no advice to use TensorFlow 2 instead: a printed program cannot follow it."""
    from tensorflow.python.util import deprecation  # noqa: PLC0415  (imports TensorFlow)

    deprecation._PRINT_DEPRECATION_WARNINGS = False
    warnings.filterwarnings("ignore", message=r"`(layer|tf)\.[\w.]+` is deprecated")


def _provide_tensorflow(folder: Path, optimizer: type) -> None:
    from lab.task.tf1.parts import tensorflow_1  # noqa: PLC0415  (imports TensorFlow)

    # Until 1.0 the class had the second name.
    names = ("SyncReplicasOptimizer", "SyncReplicasOptimizerV2")
    provide(folder, tensorflow_1(dict.fromkeys(names, optimizer)))
    numpy_1.restore_names()  # libraries have looked for the new names by now
    # All flags of the libraries are declared here; those of the program are not.
    restore_flags(flags.FLAGS)


def _change_sessions(program: Path, *, faithful: bool) -> None:
    numpy_1.convert_fetched()
    sessions.hide_cancelled_queue_runners()
    if not faithful:
        sessions.shorten_polling()
        sessions.shorten_stop()
        # In a run, the program file is a copy made at the start. Started by hand, it is older than
        # all its checkpoints.
        sessions.refuse_stale_checkpoints(program.stat().st_mtime)


def _optimizer_class(fixed_worker: str, notify: known_bugs.NotifyTask) -> type:
    """Return SyncReplicasOptimizer: fixed for the worker of this name, or watched if ""."""
    from lab.task.tf1 import synchronous  # noqa: PLC0415  (imports TensorFlow)

    if fixed_worker:
        return synchronous.fixed_optimizer(int(fixed_worker.rpartition("-")[2]), notify)
    optimizer = synchronous.SyncReplicasOptimizer
    known_bugs.Watch(notify, is_synchronous=lambda: optimizer.was_made, ended=ended_tasks).start()
    return optimizer


main()
