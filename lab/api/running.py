"""A run from Python, from its start to its end: `lab run` without its command line."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from lab.api.home import Run, home
from lab.api.placing import AnyPath, described
from lab.api.words import faults as read_faults
from lab.api.words import policy, program_words, schedule
from lab.backends import Say
from lab.backends.choose import AUTO, BACKENDS, LOCAL, backends
from lab.cli import planning
from lab.cli.outcome import judge
from lab.cli.output import say
from lab.cli.planning import Draft
from lab.cli.sites import Site, find_site, in_turn
from lab.cli.terms import check_joins, terms
from lab.config import Cluster
from lab.errors import InputError, LabError
from lab.formatting import seconds, share, whole
from lab.run import project
from lab.run.brief import watching
from lab.run.conduct import conduct
from lab.run.directory import RunDir
from lab.run.launch import Order, prepare
from lab.run.lifecycle import View
from lab.run.program import OwnProgram, names_a_program, read_program
from lab.run.summary import Summary
from lab.run.telemetry import watched
from lab.sweep.progress import Watcher
from lab.task.experiments import Experiment
from lab.task.protocol import STALL_S
from lab.task.results import is_number
from lab.tf_versions import CURRENT


def run(
    experiment: AnyPath,
    *,
    cluster: Cluster | AnyPath | None = None,
    backend: str = LOCAL,
    gpus: str = AUTO,
    start: str | Mapping[str, str] | None = None,
    faults: str | Sequence[str] = (),
    on_failure: str | None = None,
    stall: float = STALL_S,
    ready_within: float | None = None,
    data_dir: AnyPath | None = None,
    runs_dir: AnyPath | None = None,
    keep: bool = False,
    share: bool = False,
    wait: bool = False,
    check: bool = True,
    quiet: bool = False,
    args: str | Sequence[str] = (),
    **flags: object,
) -> Run:
    """Train an experiment from its start to its end.

    Ctrl-C ends it, brings home what there is, and takes down what was booted.

    Args:
        experiment: An experiment (`lab experiments` lists them), the path of your own program, or a
            program for each task: `worker-0=a.py,worker-1=b.py`.
        cluster: The description, or its file; None: the project's `cluster.yaml`.
        backend: `local` (processes), `compose` (containers), or `auto`.
        gpus: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        start: Tasks that start later: `{"worker-1": "10s"}`, or `"worker-1: after 500 steps"`.
        faults: What is done to it: `["kill worker-1 after 500 steps"]`.
        on_failure: When a task fails: `fail`, `restart`, `restart:5` or `continue`; None: as the
            experiment has it.
        stall: Seconds without a step after which it has failed; 0: no limit.
        ready_within: Seconds within which every program must be ready; None: as usual.
        data_dir: Your own data, in the four IDX files; None: those that are shipped.
        runs_dir: Where runs are kept; None: `LAB_RUNS_DIR`, or `./runs`.
        keep: Leave the environment up that this run boots; the next one is quicker.
        share: Take GPUs that another environment of the lab holds, too.
        wait: Wait for the runs that are ahead in this environment; otherwise these are an error.
        check: Whether a run that does not succeed, or finds what it should not, is an error.
        quiet: Say nothing but warnings.
        args: Words for a program of your own, or one.
        **flags: Flags of the program: `epochs=3`, `learning_rate=0.1`.

    Returns:
        The run, which has ended.

    Raises:
        InputError: An argument is wrong; nothing was started.
        LabError: It could not be run; with `check`, also: it did not succeed.
        KeyboardInterrupt: The user ended it; it is at home, as far as it came.
    """
    if threading.current_thread() is not threading.main_thread():
        raise LabError("a run is made in the main thread, which hears Ctrl-C", "call it there")
    if backend not in BACKENDS:
        raise InputError(f"backend: no {backend!r}", f"choose one of {', '.join(BACKENDS)}")
    for name, value in (("stall", stall), ("ready_within", ready_within)):
        if value is not None and not (is_number(value) and math.isfinite(value) and value >= 0):
            mend = "give one, such as 30; 0: no limit"
            raise InputError(f"{name}: {value!r} is no number of seconds", mend)
    tell = _nothing if quiet else say
    model, path = described(cluster)
    root = project.find_root(path or Path(project.DEFAULT_CLUSTER))
    wanted, own = _subject(str(experiment), model, path, root)
    words = (*wanted.args, *_own_words(own, wanted, flags), *_listed(args))
    data = project.check_data_dir(None if data_dir is None else str(data_dir), wanted)
    draft = planning.draft(model, gpus, explain=False, tensorflow=wanted.tensorflow)
    agreed = terms(
        wanted,
        model,
        draft.plan,
        own=own is not None,
        policy=policy(on_failure),
        start=schedule(start),
        ready_s=ready_within,
        stall_s=stall,
        faults=read_faults(faults),
    )
    check_joins(wanted, words, draft.plan, agreed.start, data)
    kept = home(runs_dir)
    find = partial(
        find_site,
        backend,
        draft,
        backends(),
        description=str(path or model.name),
        root=root,
        home=kept,
        say=tell,
        heed=partial(_heed, draft, tell),
        share=share,
    )
    site = find()
    order = Order(
        experiment=wanted,
        argv=words,
        plan=draft.plan,
        root=root,
        cluster_file=path,
        data_dir=project.data_dir_inside(data, site.backend.name, root),
        program=own,
        terms=agreed,
    )

    def once(site: Site, begin: Say) -> Run:
        made = prepare(order, kept)
        begin(made.run_id)
        tell(f"run {made.run_id}: {made.path}")
        summary = _conducted(made, site, keep=keep, tell=tell)
        if check:
            judge(made, summary)
        return Run(made)

    return in_turn(site, find, once, wait=wait, say=say if wait else tell)


def _listed(words: str | Sequence[str]) -> Sequence[str]:
    return (words,) if isinstance(words, str) else words


def _subject(
    word: str, cluster: Cluster, path: Path | None, root: Path
) -> tuple[Experiment, OwnProgram | None]:
    """The experiment, and the user's own program where it is none of the registry."""
    if names_a_program(word):
        own = read_program(word)
        return project.experiment_of(own, cluster, CURRENT.tensorflow), own
    wanted = project.experiment(word)
    project.check_jobs(wanted, cluster, path or Path(cluster.name), root)
    project.check_program(wanted, root)
    return wanted, None


def _own_words(
    own: OwnProgram | None, wanted: Experiment, flags: Mapping[str, object]
) -> tuple[str, ...]:
    if own is not None and flags:
        name, value = next(iter(flags.items()))
        raise InputError(
            f"{name!r} is no argument of run, and the flags of {own.program} are not known here",
            f"give them as args=[{f'--{name}={value}'!r}]",
        )
    return program_words(wanted, flags)


def _heed(draft: Draft, tell: Say) -> None:
    """Say what is to be said of a plan; cards that others use, in any case."""
    for notice in draft.plan.notices:
        tell(notice)
    for line in draft.busy:
        say(f"warning: {line}")


def _conducted(run: RunDir, site: Site, *, keep: bool, tell: Say) -> Summary:
    """What the run came to."""
    try:
        summary = conduct(
            run,
            boot=lambda defer: site.boot(defer, tell),
            found=site.found,
            keep=keep,
            view=lambda: _view(run, quiet=tell is _nothing),
            say=tell,
        )
    except KeyboardInterrupt:
        if run.path.is_dir():
            say(f"run {run.run_id} was interrupted; what it left is in {run.path}")
        raise
    tell(_told(summary))
    return summary


@contextmanager
def _view(run: RunDir, *, quiet: bool) -> Iterator[View]:
    """What is seen of the run, with its cards sampled meanwhile."""
    info = run.read()
    shown: AbstractContextManager[View] = nullcontext(Watcher(say))
    with shown if quiet else watching(info, say) as view, watched(run, info, view):
        yield view


def _told(summary: Summary) -> str:
    """What a run came to, in one line."""
    words = [f"run {summary.run_id}: {summary.state}"]
    if summary.wall_s is not None:
        words[0] += f" after {seconds(summary.wall_s)}"
    if summary.global_step is not None:
        words.append(f"global step {whole(summary.global_step)}")
    if summary.accuracy is not None:
        words.append(f"accuracy {share(summary.accuracy)}")
    return ", ".join(words)


def _nothing(_line: str) -> None:
    """Nothing is said."""
