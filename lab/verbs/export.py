"""`lab export RUN`.

The archive contains run.json, the summary, records, logs, states, GPU samples and your own program.
Logs and run.json can contain paths and user names of this host, so check them before you publish
the archive. --all adds checkpoints, the saved model and the files of the programs.

Examples:
    # the newest run, to RUN_ID.lab.tar.gz in this directory
    lab export last
    # with its checkpoints, to a file that you name
    lab export last --all --output my-run.lab.tar.gz
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.filesize import decimal

from lab.base.errors import InputError, LabError
from lab.base.files import atomic_writer, check_output
from lab.base.formatting import counted
from lab.base.log import LOG
from lab.base.options import Argument, Flag, Switch, verb
from lab.base.text import short
from lab.cluster.project import AnyPath
from lab.runner.store.archive import SUFFIX, contents, is_archive_of, pack
from lab.runner.store.directory import RunDir, RunStatus, runs_path
from lab.runner.store.names import named_run
from lab.verbs.common_options import RunsDir
from lab.verbs.printing import Note, Shown, prints
from lab.verbs.results import Run


@dataclass(frozen=True, slots=True, repr=False)
class Exported(Shown):
    """An archive that was written.

    Attributes:
        run_id: The run.
        file: The archive.
        bytes: Its size.
        files: The number of files in it.
        content_bytes: Their size.
        left_out: The number of files of the run that only a complete archive contains.
        left_out_bytes: Their size.
    """

    run_id: str
    file: Path
    bytes: int
    files: int
    content_bytes: int
    left_out: int
    left_out_bytes: int

    def _shown(self) -> Iterator[str]:
        packed = f"{counted(self.files, 'file')}, {decimal(self.content_bytes)}"
        line = f"run {self.run_id}: {packed}, as {decimal(self.bytes)} in {short(str(self.file))}"
        if self.left_out:
            rest = f"{counted(self.left_out, 'file')}, {decimal(self.left_out_bytes)}"
            line += f"; without checkpoints, model and files ({rest}): add them with --all"
        yield Note(line)
        yield str(self.file)


@verb
def export(
    run: Annotated[Run | AnyPath, Argument()],
    *,
    output: Annotated[AnyPath | None, Flag(shows="FILE", short="-o")] = None,
    all_: Annotated[bool, Switch()] = False,
    force: Annotated[bool, Switch()] = False,
    runs_dir: RunsDir = None,
) -> Exported:
    """Write a run that has ended to one file; `import_` reads it.

    Args:
        run: A run's id, a unique prefix of it, last, or last~1.
        output: The archive (default: RUN_ID.lab.tar.gz in this directory).
        all_: Include checkpoints, the model and the files of the programs.
        force: Replace the file even if it is not this run's archive.
        runs_dir: The run store.

    Raises:
        InputError: No run matches, it has not ended, or the output would replace another file.
        LabError: A file of the run cannot be read, or the archive cannot be written.
    """
    wanted = named_run(str(run), runs_path(runs_dir))
    target = Path(output or f"{wanted.run_id}{SUFFIX}")
    check_output("--output", target, lambda begin: is_archive_of(wanted, begin), force=force)
    if target.exists() and not target.is_file():
        raise InputError(f"--output: {target} is not a file", "name a file")
    with wanted.locked():
        if not _ended(wanted):
            LOG.warning(f"run {wanted.run_id} is not fully collected, so files may be missing")
        sizes, skipped = contents(wanted, complete=all_)
        for name in skipped:
            LOG.warning(f"left out: {name} is not a regular file")
        try:
            with atomic_writer(target.resolve()) as file:
                pack(wanted, list(sizes), file)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            problem = f"the archive cannot be written to {target}: {reason}"
            raise LabError(problem, "choose another file with --output") from error
        every = contents(wanted, complete=True)[0]
    return Exported(
        wanted.run_id,
        target,
        target.stat().st_size,
        len(sizes),
        sum(sizes.values()),
        len(every) - len(sizes),
        sum(every.values()) - sum(sizes.values()),
    )


def _ended(run: RunDir) -> bool:
    """Check that a run has ended; return whether all its files are collected.

    Raises:
        LabError: It has not, or `run.json` is of another run.
    """
    info = RunStatus.recorded(run).info
    if info.run_id != run.run_id:
        problem = f"{run.path}: run.json belongs to another run, {info.run_id!r}"
        raise LabError(problem, f"rename the directory to {info.run_id}")
    if not info.state.ended:
        raise InputError(
            f"run {run.run_id} has not ended: it is {info.state.value}",
            f"wait until it ends, or collect it with `lab attach {run.run_id}`",
        )
    return info.collected or not info.has_started


command = prints(export)
