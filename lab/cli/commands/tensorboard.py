"""`lab tensorboard [RUN…]`."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from lab.cli.arguments import Flag, Switch, Words
from lab.cli.options import RunsDir
from lab.cli.values import whole
from lab.console import say
from lab.errors import InputError, LabError
from lab.run.store import RunDir, all_runs, find_run, runs_dir
from lab.task.text import visible
from lab.tensorboard.files import grow, link, write_events

_LAST_PORT = 65535
_PERIOD_S = 2.0  # TensorBoard itself looks every five


def command(
    *,
    runs: Annotated[
        tuple[str, ...], Words("runs' ids, or last (default: all that are at home)", shows="RUN")
    ] = (),
    port: Annotated[
        int | None,
        Flag("of 127.0.0.1 (default: one that is free)", whole(1, _LAST_PORT), shows="PORT"),
    ] = None,
    write_only: Annotated[bool, Switch("write the files of events, and serve nothing")] = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Show runs in TensorBoard, until Ctrl-C."""
    wanted = _wanted(runs, runs_dir(runs_dir_))
    written = [path for run in wanted for path in write_events(run, say)]
    say(f"files of events: {len(written)} written, see {wanted[-1].path / 'tb'}")
    if write_only:
        for path in written:
            print(path)
        return
    # Imported here: TensorBoard costs a second, and not every call needs it.
    from lab.tensorboard.server import serve  # noqa: PLC0415

    alone = len(wanted) == 1
    with tempfile.TemporaryDirectory(prefix="lab-tensorboard-") as folder:
        named = {"" if alone else run.run_id: run for run in wanted}
        link(named, Path(folder))
        print(serve(Path(folder), port or 0), flush=True)
        say("Ctrl-C ends it")
        _keep_up(named, Path(folder))
        threading.Event().wait()


def _keep_up(named: Mapping[str, RunDir], folder: Path) -> None:
    """Show what comes of the runs that are under way, until the last of them has ended."""
    under_way = {name: run for name, run in named.items() if not run.read().state.ended}
    if under_way:
        say(f"runs under way: {len(under_way)}, looked at every {_PERIOD_S:g} s")
    while under_way:
        threading.Event().wait(_PERIOD_S)
        for name, run in list(under_way.items()):
            try:
                ended = run.read().state.ended  # asked first: what it wrote before is there then
                if grow(run, say):
                    link({name: run}, folder)
            except (LabError, OSError) as error:
                say(f"warning: run {run.run_id} is followed no longer: {visible(str(error))}")
                ended = True
            if ended:
                del under_way[name]


def _wanted(words: Sequence[str], home: Path) -> list[RunDir]:
    """The runs that are meant, each once."""
    if not words:
        found = all_runs(home)
        if not found:
            raise InputError(f"no run in {home}", "start one with `lab run async`")
        return found
    return list({run.run_id: run for run in (find_run(word, home) for word in words)}.values())
