"""`lab logs [RUN]`.

Examples:
    # one task of the newest run
    lab logs last --task worker-0
    # all tasks of the environment, until Ctrl-C
    lab logs --follow
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Annotated

from lab.base.converters import point_in_time, whole
from lab.base.errors import InputError
from lab.base.options import Argument, Flag, Switch, given_flags, verb
from lab.base.text import visible
from lab.protocol.records.echo import TensorFlowLines
from lab.runner.program_output import lines_of, prefixed, readable, tensorflow_notice
from lab.runner.store.directory import RunDir, runs_path
from lab.runner.store.names import find_run
from lab.verbs.common_options import EnvironmentName, RunsDir
from lab.verbs.inputs import find_environment
from lab.verbs.printing import Lines, Note, prints


@verb
def logs(
    run: Annotated[
        str | None,
        Argument(
            "a run's id, a unique prefix of it, last, or last~1 (default: the environment's tasks)"
        ),
    ] = None,
    *,
    task: Annotated[
        str | None, Flag("one task, or several separated by commas (default: all)", shows="TASK")
    ] = None,
    tensorflow: Annotated[bool, Switch("for a run: also print TensorFlow's own lines")] = False,
    follow: Annotated[
        bool, Switch("for an environment: print new lines until Ctrl-C", short="-f")
    ] = False,
    tail: Annotated[
        int | None, Flag("only the last N lines of each task", whole(0), shows="N", short="-n")
    ] = None,
    since: Annotated[
        float | None,
        Flag(
            "for an environment: only lines since this time: 10m, 1h30m, 14:05, 2026-11-21T14:05",
            point_in_time,
            shows="TIME",
        ),
    ] = None,
    name: EnvironmentName = None,
    runs_dir: RunsDir = None,
) -> Lines:
    """Return the output of the programs of a run, or of the tasks of an environment."""
    given = dict(locals())
    wanted = [each.strip() for each in task.split(",")] if task else []
    if run is not None:
        for flag in given_flags(logs, given, "follow", "since", "name"):
            raise InputError(f"{flag} is only for an environment", "leave out the run")
        return _of_run(find_run(run, runs_path(runs_dir)), wanted, tail, tensorflow=tensorflow)
    for flag in given_flags(logs, given, "tensorflow", "runs_dir"):
        raise InputError(f"{flag} is only for a run", "name a run: `lab logs last`")
    environment = find_environment(name)

    def read() -> Iterator[str]:
        for line in environment.logs(wanted, follow=follow, tail=tail, since=since):
            yield visible(line.rstrip("\r\n"))

    return Lines(read, is_live=follow)


def _of_run(run: RunDir, wanted: Sequence[str], tail: int | None, *, tensorflow: bool) -> Lines:
    known = run.read().task_names()
    for task in wanted:
        if task not in known:
            raise InputError(
                f"run {run.run_id} has no task {task!r}", f"its tasks: {', '.join(known)}"
            )
    tasks = wanted or known
    return Lines(lambda: _lines(run, tasks, tail, tensorflow=tensorflow))


def _lines(
    run: RunDir, tasks: Sequence[str], tail: int | None, *, tensorflow: bool
) -> Iterator[str]:
    """Yield the lines of a run, and then what else there is to see."""
    width = max(map(len, tasks), default=0)
    found: Counter[bool] = Counter()  # the number of lines, by whether TensorFlow printed them

    def shown(task: str) -> Iterator[bytes]:
        of_tensorflow = TensorFlowLines()
        for line in lines_of(run.log(task)):
            is_noise = of_tensorflow.has(line)
            found[is_noise] += 1
            if tensorflow or not is_noise:
                yield line

    for task in tasks:
        for line in shown(task) if tail is None else deque(shown(task), tail):
            yield prefixed(task, width, readable(line))
    if found[True] and not tensorflow:
        yield Note(tensorflow_notice(run.run_id))
    elif not found:
        yield Note(
            f"the programs of run {run.run_id} printed nothing; show its results with"
            f" `lab show {run.run_id}`"
        )
    if not run.read().state.ended:
        rest = f"collect the rest with `lab attach {run.run_id}`"
        yield Note(f"run {run.run_id} has not ended; {rest}")


command = prints(logs)
