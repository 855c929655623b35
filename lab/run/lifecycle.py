"""The life of a run: enter → submit → describe → follow → finish.

Whoever follows a run may stop and another may go on: everything that is needed lies in
`runs/<id>/` and on the run volume.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Protocol

from lab.backends import Environment
from lab.errors import LabError
from lab.run.collect import Collector, sizes_at_home, task_of
from lab.run.directory import RunDir, RunInfo
from lab.run.printed import PrintedLines
from lab.run.progress import LineReader
from lab.run.summary import Summary, read_statuses, sum_up, write_summary
from lab.task.appending import Written
from lab.task.policy import outcome
from lab.task.protocol import Request, TaskStatus
from lab.task.states import State, run_state


class View(Protocol):
    """Whoever watches a run."""

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """New records of a task."""

    def printed(self, task: str, lines: Sequence[str]) -> None:
        """Lines that a task's program printed, safe to show."""

    def status(self, status: TaskStatus) -> None:
        """A task's new state."""

    def forget(self, task: str) -> None:
        """The task's records come again from the first."""

    def gpus(self, use: Mapping[str, float]) -> None:
        """How busy each task's cards are now, a share; from another thread, once a second."""

    def tick(self) -> None:
        """Time has passed; called at least once a second."""

    def notice(self, line: str) -> None:
        """One line for the user."""


class NoView:
    """Nobody watches."""

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """Nothing."""

    def printed(self, task: str, lines: Sequence[str]) -> None:
        """Nothing."""

    def status(self, status: TaskStatus) -> None:
        """Nothing."""

    def forget(self, task: str) -> None:
        """Nothing."""

    def gpus(self, use: Mapping[str, float]) -> None:
        """Nothing."""

    def tick(self) -> None:
        """Nothing."""

    def notice(self, line: str) -> None:
        """Nothing."""


def enter(run: RunDir, environment: Environment) -> RunInfo:
    """Write into `run.json` what the run really runs on."""
    tasks = tuple(asdict(task) for task in environment.tasks())
    for task in tasks:
        del task["alive"], task["detail"]
    return run.update(
        backend=environment.backend,
        project=environment.project,
        cluster=environment.cluster_spec(),
        tasks=tasks,
        gpus=tuple(dict.fromkeys(gpu for task in tasks for gpu in task["gpus"])),
    )


def describe(run: RunDir, environment: Environment) -> None:
    """Write into `run.json` and beside it what that was made from.

    It takes an engine half a second to tell, in which the programs of a run may start.
    """
    name, text = environment.description()
    (run.path / PurePosixPath(name).name).write_text(text, encoding="utf-8")
    run.update(provenance=environment.provenance())


def submit(run: RunDir, environment: Environment) -> None:
    """Hand the run to the agents.

    Raises:
        LabError: Another run is under way in this environment.
    """
    info = run.read()
    now = time.time()
    parts = {"program": run.program} if info.own else {}
    if run.files.is_dir():
        parts["files"] = run.files
    if info.resumed_from:
        parts["checkpoints"] = run.checkpoints
    environment.submit(
        Request(
            run_id=info.run_id,
            experiment=info.experiment,
            program=info.program,
            args=info.argv,
            cluster=dict(info.cluster),
            services=info.services,
            data_dir=info.data_dir,
            submitted_unix=now,
            own=info.own,
            listing=info.listing,
            faithful=info.faithful,
            mend=info.mend,
            cluster_flags=info.cluster_flags,
            programs=info.programs,
            stall_s=info.stall_s,
            ready_s=info.ready_s,
            start=dict(info.start),
            on_failure=info.on_failure,
            restarts=info.restarts,
            gang=info.gang,
            faults=info.faults,
        ),
        parts,
    )
    run.update(state=State.STARTING, submitted_unix=now)


def bring_home(
    run: RunDir,
    environment: Environment,
    *,
    follow: bool,
    view: View,
    tick: Callable[[int | None], None] = lambda _step: None,
    all_sizes: bool = False,
    rest: bool = False,
) -> None:
    """Collect a run; with `follow` until its last task has ended.

    Args:
        run: Where to.
        environment: Where from.
        follow: Go on until its last task has ended, otherwise stop at what is there now.
        view: Is told what comes.
        tick: Called at least once a second, with the global step as far as it is known.
        all_sizes: Collect files of any size.
        rest: Collect all files although a task has not written its end: its agent has died.

    Raises:
        LabError: The environment has gone, or the disk is full; what came is kept.
    """
    readers: dict[str, LineReader] = {}
    printed = PrintedLines(run.run_id, view.printed, view.notice)
    statuses = read_statuses(run, run.read(), skip_damaged=True)

    def appended(path: str, data: bytes) -> None:
        if task := task_of(path, "logs", ".log"):
            printed.feed(task, data)
        if task := task_of(path, "tasks", ".jsonl"):
            records = list(readers.setdefault(task, LineReader()).feed(data))
            if records:
                view.records(task, records)

    def replaced(path: str, data: bytes) -> None:
        if task := task_of(path, "tasks", ".jsonl"):
            # What is on the volume is not what came before: from here on it counts anew.
            readers.pop(task, None)
            view.forget(task)
            appended(path, data)
        if task := task_of(path, "logs", ".log"):
            printed.forget(task)
            appended(path, data)
        if task_of(path, "status", ".json"):
            status = TaskStatus.from_json(data.decode("utf-8", errors="replace"))
            view.status(status)
            statuses[status.task] = status
            _follow_state(run, statuses)

    _replay(run, readers, view)
    collector = Collector(run.path, appended, replaced)
    for chunk in environment.ship(
        run.run_id, collector.offsets(), follow=follow, all_sizes=all_sizes, rest=rest
    ):
        if chunk is not None:
            collector.accept(chunk)
        view.tick()
        steps = [each.global_step for each in statuses.values() if each.global_step is not None]
        tick(max(steps, default=None))
    printed.close()
    info = run.read()
    left = tuple(collector.left.values())
    collected = info.collected or _all_ended(info, read_statuses(run, info))
    if (left, collected) != (info.left, info.collected):
        run.update(left=left, collected=collected)
        if collected and not any(each.kept for each in left):
            with suppress(LabError):  # without the note it may be collected twice: no harm
                environment.mark_collected(run.run_id, str(run.path.parent.resolve()))


def come_home(
    run: RunDir,
    environment: Environment,
    view: View,
    tick: Callable[[int | None], None] = lambda _step: None,
) -> None:
    """Follow the run to its end; where that breaks off, go on, or fetch what is left.

    A stream ends with the one task that it comes through, while the others may train on. It is
    given up when it breaks off twice and nothing has come in between.

    Raises:
        LabError: It was given up, or the environment has gone.
    """
    before = -1
    while True:
        try:
            bring_home(run, environment, follow=True, view=view, tick=tick)
        except LabError as error:
            gone = has_gone(environment)
            now = sum(sizes_at_home(run.path).values())
            if not gone and now == before:
                raise
            before = now
            view.notice(f"{error.what}; " + ("collecting what it left" if gone else "going on"))
            if gone:
                with suppress(LabError):  # why it broke off says more
                    bring_home(run, environment, follow=False, view=view, tick=tick)
                give_up(run, State.LOST, str(error))
                raise
        else:
            return


def finish(run: RunDir) -> Summary:
    """Say what the run came to, if all of its tasks have ended: `run.json`, the summary.

    How its tasks ended counts more than why somebody stopped following it.

    Returns:
        The summary; its state is the run's, ended or not.
    """
    info = run.read()
    statuses = read_statuses(run, info)
    if not info.state.ended or _all_ended(info, statuses):
        state, reason = verdict(info, statuses)
        altered = _altered(run, info, statuses) if state is State.SUCCEEDED else None
        if altered is not None:
            state, reason = State.FAILED, f"the records of {altered} were changed after its end"
        ended = [each.ended_unix for each in statuses.values() if each.ended_unix is not None]
        stopped = (max(ended) if ended else time.time()) if state.ended else None
        info = run.update(state=state, reason=reason, stopped_unix=stopped)
    summary = sum_up(run, info, statuses)
    if info.state.ended:
        write_summary(run, summary)
    return summary


def _altered(run: RunDir, info: RunInfo, statuses: Mapping[str, TaskStatus]) -> str | None:
    """The first task whose collected records are not those that its agent has written."""
    left = {each.path for each in info.left}
    for task, status in statuses.items():
        path = run.records(task)
        if not status.records_sha256 or f"tasks/{path.name}" in left:
            continue
        written = Written.of(path)
        if written.sha256 != status.records_sha256:
            return task
    return None


def end_as(run: RunDir, state: State, reason: str) -> None:
    """End a run for a reason that its tasks do not know."""
    if not run.read().state.ended:
        run.update(state=state, reason=reason, stopped_unix=time.time())


def give_up(run: RunDir, state: State, reason: str) -> None:
    """Sum up a run that broke off; what its tasks say of its end goes first."""
    if not State(finish(run).state).ended:
        end_as(run, state, reason)
        finish(run)


def verdict(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> tuple[State, str]:
    """Where the run stands, and why, from the states of its tasks; a pure function.

    The worst end of a task is the run's, and the first task that ended so is the reason.
    """
    names = [name for name in info.task_names() if name in statuses]
    if not _all_ended(info, statuses):
        return _standing(info, statuses), info.reason
    state, guilty = outcome(info, {name: statuses[name] for name in names})
    if state is State.SUCCEEDED:
        return state, ""
    first = statuses[guilty[0]]
    return state, first.reason if state is State.CANCELLED else f"{first.task} {explain(first)}"


def has_gone(environment: Environment) -> bool:
    """Whether no agent is left in an environment.

    Raises:
        LabError: Nobody can say, for the engine does not answer.
    """
    return not any(task.alive for task in environment.tasks())


def explain(status: TaskStatus) -> str:
    """A task's state and reason in words: `failed: exit code 1`."""
    reason = status.reason
    if status.state is State.SUCCEEDED and not reason:
        return status.state.value
    if not reason and status.signal:
        reason = status.signal
    if not reason and status.exit_code is not None:
        reason = f"exit code {status.exit_code}"
    return f"{status.state.value}: {reason}" if reason else status.state.value


def _all_ended(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> bool:
    """Whether every task has said how it ended."""
    return all(task in statuses and statuses[task].state.ended for task in info.task_names())


def _standing(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> State:
    """Where a run stands that has not ended; once it was handed to the agents, it has begun."""
    states = [statuses[task].state for task in info.task_names() if task in statuses]
    missing = len(info.task_names()) - len(states)
    found = run_state([*states, *[State.PENDING] * missing])
    begun = found is State.PENDING and info.submitted_unix is not None
    return State.STARTING if begun else found


def _follow_state(run: RunDir, statuses: Mapping[str, TaskStatus]) -> None:
    """Let `run.json` know where the run stands, but for its end, which is judged when all is in."""
    info = run.read()
    if not info.state.ended and not _all_ended(info, statuses):
        state = _standing(info, statuses)
        if state is not info.state:
            run.update(state=state)


def _replay(run: RunDir, readers: dict[str, LineReader], view: View) -> None:
    """Show the view what is at home already, and leave half a line with its reader."""
    info = run.read()
    for task in info.task_names():
        path = run.records(task)
        if path.is_file():
            reader = readers.setdefault(task, LineReader())
            view.forget(task)  # it may have been followed before
            with path.open("rb") as file:
                while data := file.read(1 << 20):
                    view.records(task, list(reader.feed(data)))
    for status in read_statuses(run, info, skip_damaged=True).values():
        view.status(status)
