"""`lab tensorboard [RUN…]`.

lab writes event files from the records to `runs/<id>/tb/<task>/`, and updates them
when there are new records. TensorBoard also shows a program's own summaries. A run
in progress is updated until it ends.

Examples:
    # the newest run; Ctrl-C ends it
    lab tensorboard last --port 6006
    # write the event files of all collected runs, and start no server
    lab tensorboard --write-only
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from lab.errors import InputError, LabError
from lab.log import LOG
from lab.options import Arguments, Flag, Switch
from lab.options.shared import RunsDir
from lab.options.types import whole
from lab.store.directory import RunDir, all_runs, runs_path
from lab.store.names import named_runs
from lab.text import visible

_LAST_PORT = 65535
_PERIOD_S = 2.0  # TensorBoard reloads every 5 s


def command(
    *,
    runs: Annotated[
        tuple[str, ...],
        Arguments("ids or directories of runs, last, or last~1 (default: all)", shows="RUN"),
    ] = (),
    port: Annotated[
        int | None,
        Flag("the port on 127.0.0.1 (default: a free one)", whole(1, _LAST_PORT), shows="PORT"),
    ] = None,
    write_only: Annotated[bool, Switch("write the event files, and start no server")] = False,
    runs_dir: RunsDir = None,
) -> None:
    """Show runs in TensorBoard, until Ctrl-C."""
    wanted = _selected_runs(runs, runs_path(runs_dir))
    # Imported here: importing pandas and TensorBoard takes a second.
    from lab.analysis.tensorboard import link_events, serve, write_events  # noqa: PLC0415

    written = [path for run in wanted for path in write_events(run)]
    LOG.info(f"event files: {len(written)} written, see {wanted[-1].path / 'tb'}")
    if write_only:
        for path in written:
            print(path)
        return
    alone = len(wanted) == 1
    with tempfile.TemporaryDirectory(prefix="lab-tensorboard-") as folder:
        named = {"" if alone else run.run_id: run for run in wanted}
        link_events(named, Path(folder))
        print(serve(Path(folder), port or 0), flush=True)
        LOG.info("stop TensorBoard with Ctrl-C")
        _follow(named, Path(folder))
        never = threading.Event()
        # A wait without a limit would miss a signal that arrives just before it begins.
        while not never.wait(_PERIOD_S):
            pass


def _follow(named: Mapping[str, RunDir], folder: Path) -> None:
    """Update the event files of the runs in progress, until all of them have ended."""
    from lab.analysis.tensorboard import link_events, write_events  # noqa: PLC0415

    under_way = {name: run for name, run in named.items() if not run.read().state.ended}
    if under_way:
        LOG.info(f"runs in progress: {len(under_way)}, updated every {_PERIOD_S:g} s")
    while under_way:
        threading.Event().wait(_PERIOD_S)
        for name, run in list(under_way.items()):
            try:
                # Read the state first: all records from before the end are written then.
                ended = run.read().state.ended
                if write_events(run, append=True):
                    link_events({name: run}, folder)
            except (LabError, OSError) as error:
                LOG.warning(
                    f"warning: run {run.run_id} is no longer updated: {visible(str(error))}"
                )
                ended = True
            if ended:
                del under_way[name]


def _selected_runs(arguments: Sequence[str], store: Path) -> list[RunDir]:
    """Return the runs that the arguments name, each once."""
    if not arguments:
        found = all_runs(store)
        if not found:
            raise InputError(f"no run in {store}", "start one with `lab run async`")
        return found
    named = [run.directory for argument in arguments for run in named_runs(argument, store)]
    return list({run.run_id: run for run in named}.values())
