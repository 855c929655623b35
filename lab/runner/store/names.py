"""The runs that a user names: by id, directory, run store or archive."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from lab.base.errors import InputError, LabError
from lab.base.formatting import counted
from lab.base.log import LOG
from lab.base.text import short
from lab.runner.store.directory import LAST, Probe, RunDir, VolumeStatus, all_runs, infos
from lab.runner.store.run_info import RunInfo

LONGEST_LABEL: Final = 60
"""The maximum number of characters of a label."""

_BEFORE_LAST: Final = re.compile(rf"{LAST}(?:~(\d{{1,6}}))?")

T = TypeVar("T")


def before_last(argument: str) -> int | None:
    """Return the number of runs between the last one and the named one.

    Returns:
        0 for `last`, 1 for `last~1` and so on; None for an id.
    """
    match = _BEFORE_LAST.fullmatch(argument)
    return int(match[1] or 0) if match else None


def resolve(argument: str, ids: list[str], *, where: str) -> str:
    """Find the id of a run by the id, a unique beginning of it, `last`, or `last~1`.

    Args:
        argument: What the user typed.
        ids: The ids to choose from, oldest first; for `last` and `last~1`, of runs that started.
        where: The run store or environment, for the message.

    Raises:
        InputError: No run matches, or several do.
    """
    if not ids:
        raise InputError(f"no run in {where} has started", "start one with `lab run async`")
    back = before_last(argument)
    if back is not None and back >= len(ids):
        raise InputError(f"{argument}: {where} has {counted(len(ids), 'run')}", "see `lab runs`")
    if back is not None:
        return ids[-1 - back]
    if argument in ids:
        return argument
    fitting = [run_id for run_id in ids if run_id.startswith(argument)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        some = ", ".join(fitting[:4])
        raise InputError(
            f"{argument!r} matches {len(fitting)} runs ({some})", "type more characters of the id"
        )
    raise InputError(f"no run {argument!r} in {where}", "see `lab runs`")


def started(store: Path) -> dict[str, RunInfo]:
    """Return the runs of a run store that `last` and `last~1` count, by id, the oldest first."""
    return {
        run.run_id: info
        for run, info in infos(store).items()
        if info is not None and info.has_started and not info.imported
    }


def find_run(argument: str, store: Path) -> RunDir:
    """Find the run of a run store that a user names; `last` is never an imported run.

    Args:
        argument: What the user typed, or the path of the run's directory.
        store: The run store.

    Raises:
        InputError: No run matches, or several do.
    """
    path = Path(argument)
    if path.is_absolute() and path.parent == store.absolute() and path.is_dir():
        return RunDir(store / path.name)
    is_id = before_last(argument) is None
    ids = [run.run_id for run in infos(store)] if is_id else list(started(store))
    return RunDir(store / resolve(argument, ids, where=str(store)))


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run that a user named.

    Attributes:
        directory: Its directory.
        is_own: Whether it is in the run store of this user.
        archive: The archive that was unpacked into its directory, or None.
        origin: Where it comes from, if that is not the run store: a directory or an archive.
        group: The label of the argument that names it, or "".
        label: Its own name in a page or table; "" if it is the run's id.
    """

    directory: RunDir
    is_own: bool
    archive: Path | None = None
    origin: str = ""
    group: str = ""
    label: str = ""

    @property
    def source(self) -> Path:
        """Where its files come from, as an absolute path: its directory, or an archive."""
        return (self.archive or self.directory.path).resolve()

    @property
    def name(self) -> str:
        """The label, or the run's id."""
        return self.label or self.directory.run_id

    @property
    def place(self) -> str:
        """Its id and its origin."""
        return f"{self.directory.run_id} in {self.origin or 'the run store'}"

    def probe(self, ask: Probe) -> Probe:
        """Return the probe for this run: no environment of this host has the run of another user.

        Args:
            ask: Looks for a run of this user.
        """
        return ask if self.is_own else self._unknown

    def _unknown(self, _info: RunInfo) -> VolumeStatus | None:
        raise LabError(f"it is outside the run store, in {self.origin}")


def named_runs(argument: str, store: Path, unpacked: ExitStack | None = None) -> list[NamedRun]:
    """Find the runs that a user names.

    An argument without a slash is an id, a beginning of it, `last` or `last~1`. If the run store
    has no such run, or with a slash, it is a path: the directory of a run, a directory of runs, or
    an archive.

    Args:
        argument: What the user typed.
        store: The run store.
        unpacked: Removes the directory of an unpacked archive; None: archives are not accepted.

    Raises:
        InputError: It names no run.
        LabError: A directory cannot be read, or an archive is not valid.
    """
    path = Path(argument)
    if "/" not in argument:
        try:
            return [NamedRun(find_run(argument, store), is_own=True)]
        except InputError:
            if not path.exists():
                raise
    try:
        if path.is_file():
            return [_unpacked(argument, unpacked)]
        if not path.is_dir():
            raise InputError(f"no run, directory or archive {argument}", "check its path")
        where = path if path.name not in {"", ".."} else path.resolve()
        runs = [RunDir(where)] if RunDir(where).info_path.exists() else all_runs(where)
        found = [
            NamedRun(
                run,
                is_own=run.path.resolve().parent == store.resolve(),
                origin=short(str(run.path.parent)),
            )
            for run in runs
        ]
    except (OSError, ValueError, RuntimeError) as error:
        raise LabError(f"{argument} cannot be read: {error}", "check its permissions") from error
    if not found:
        raise InputError(f"{argument} has no runs", "name a run's directory, or a run store")
    return found


def named_run(argument: str, store: Path) -> RunDir:
    """Return the only run that an argument names; see `named_runs`.

    Raises:
        InputError: It names no run, or several.
        LabError: A directory cannot be read.
    """
    runs = named_runs(argument, store)
    if len(runs) > 1:
        raise InputError(f"{argument} has {counted(len(runs), 'run')}", "name one of them")
    return runs[0].directory


def _unpacked(argument: str, unpacked: ExitStack | None) -> NamedRun:
    archive = Path(argument)
    if unpacked is None:
        raise InputError(f"{argument} is a file", "import an archive with `lab import`")
    from lab.runner.store.archive import unpack  # noqa: PLC0415  (most commands read no archive)

    folder = unpacked.enter_context(tempfile.TemporaryDirectory(prefix="lab-"))
    run = unpack(archive, Path(folder))
    return NamedRun(run, is_own=False, archive=archive, origin=short(argument))


@contextmanager
def open_runs(
    arguments: Sequence[str], labels: Sequence[str], store: Path
) -> Iterator[list[NamedRun]]:
    """Find the runs that a user names, each once.

    Archives are unpacked into a temporary directory, which is removed at the end.

    Args:
        arguments: What the user typed: see `named_runs`.
        labels: No label, one for each argument, or a single one for all of them.
        store: The run store.

    Raises:
        InputError: There is no argument, one names no run, or the labels are wrong.
        LabError: The only argument is an archive that is not valid.
    """
    if not arguments:
        raise InputError("no run is given", "name a run, a directory of runs, or an archive")
    _check_labels(arguments, labels)
    of_each = labels if len(labels) == len(arguments) else [*(labels or [""])] * len(arguments)
    with ExitStack() as stack:
        opened: dict[Path, NamedRun] = {}
        for argument, label in zip(arguments, of_each, strict=True):
            try:
                runs = named_runs(argument, store, stack)
            except InputError:
                raise
            except LabError as error:
                if len(arguments) == 1:
                    raise
                LOG.warning(f"left out: {error}")
                continue
            for run in runs:
                opened.setdefault(run.source, replace(run, group=label))
        yield _labelled(without_copies(opened.values()))


def without_copies(runs: Iterable[NamedRun]) -> list[NamedRun]:
    """Return each run once; report each copy of another one."""
    first_copies: dict[Hashable, NamedRun] = {}
    for run in runs:
        first = first_copies.setdefault(_identity(run), run)
        if first.source != run.source:
            LOG.warning(f"left out: run {run.place} is a copy of run {first.place}")
    return list(first_copies.values())


def _identity(run: NamedRun) -> Hashable:
    """Return what a run shares with its copies, whatever their paths: two runs may have one id."""
    try:
        info = run.directory.read()
    except (LabError, OSError):  # its reader reports it
        return run.source
    return info.run_id, info.submitted_unix


def _check_labels(arguments: Sequence[str], labels: Sequence[str]) -> None:
    if len(labels) > 1 and len(labels) != len(arguments):
        raise InputError(
            f"{counted(len(labels), 'label')} for {counted(len(arguments), 'argument')}",
            "give --label once for all, or once for each RUN, in the same order",
        )
    for label in labels:
        if len(label) > LONGEST_LABEL:
            fix = f"use at most {LONGEST_LABEL} characters"
            raise InputError(f"label {label!r} is too long", fix)


def _labelled(runs: list[NamedRun]) -> list[NamedRun]:
    """Return the runs with different names.

    Several runs of a label are numbered; runs without one that have the same id get their places.
    """
    sizes, numbers = Counter(run.group for run in runs), Counter[str]()
    ids = Counter(run.directory.run_id for run in runs)
    labelled = []
    for run in runs:
        numbers[run.group] += 1
        label = run.group
        if label and sizes[label] > 1:
            label = f"{label}, run {numbers[label]}"
        elif not label and ids[run.directory.run_id] > 1:
            label = run.place
        labelled.append(replace(run, label=label))
    return labelled


def read_each(
    runs: Sequence[NamedRun], read: Callable[[NamedRun], T], *, at_least: int = 1
) -> list[T]:
    """Read runs; leave out a damaged one with a warning.

    Args:
        runs: The runs.
        read: Reads one run; raises LabError or OSError if it is damaged.
        at_least: The number of runs that the command needs.

    Raises:
        LabError: Fewer than `at_least` runs can be read.
    """
    results: list[T] = []
    failures: list[LabError] = []
    for run in runs:
        try:
            results.append(read(run))
        except LabError as error:
            failures.append(error)
        except OSError as error:
            what = f"{run.directory.path} cannot be read: {error.strerror or error}"
            failures.append(LabError(what))
    if failures and len(results) < at_least:
        raise failures[-1]
    for failure in failures:
        LOG.warning(f"left out: {failure}")
    return results
