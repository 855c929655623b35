"""`lab export RUN`.

The archive has run.json, the summary, records, logs, states, GPU samples and the program of your
own. Logs and run.json can contain paths and user names of this host: look at them before you
publish the archive. Checkpoints, the saved model and the files of the programs need --all.

Examples:
    # the newest run, to RUN_ID.lab.zip in this directory
    lab export last
    # with its checkpoints, to a file that you name
    lab export last --all --output my-run.lab.zip
"""

from __future__ import annotations

from typing import Annotated

from lab.console import print_json
from lab.log import LOG
from lab.options import Argument, Flag, Switch
from lab.options.shared import AsJson, RunsDir
from lab.service.archive import described, export_run
from lab.store.directory import runs_dir
from lab.store.names import find_run


def command(
    *,
    run: Annotated[str, Argument("a run's id, a unique prefix of it, last, or last~1")],
    output: Annotated[
        str | None,
        Flag("the archive (default: RUN_ID.lab.zip in this directory)", shows="FILE", short="-o"),
    ] = None,
    all_: Annotated[
        bool, Switch("include checkpoints, the model and the files of the programs")
    ] = False,
    force: Annotated[bool, Switch("replace the file even if it is not this run's archive")] = False,
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Write a run that has ended to one file; `lab import` reads it."""
    wanted = find_run(run, runs_dir(runs_dir_))
    found = export_run(wanted, output, complete=all_, force=force)
    if json:
        print_json(found.to_json())
    else:
        LOG.info(described(found))
        print(found.file)
