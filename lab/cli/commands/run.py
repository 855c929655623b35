"""`lab run EXPERIMENT`.

worker-0=a.py,worker-1=b.py in the place of a program gives each task its own.
All lie in one directory. A service, such as ps-0, may be left out.

Examples:
    # three workers, each on its own
    lab run async --epochs 2
    # without containers
    lab run sync --cluster clusters/book.yaml --backend local --epochs 1
    # a worker that dies comes back
    lab run async --on-failure restart --fault "kill worker-1 after 500 steps"
    # a program that a book of 2017 prints, unchanged
    lab run --listing printed.py --cluster clusters/book.yaml
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated

from lab.backends import Say
from lab.backends.choose import AUTO, backends
from lab.cli import planning
from lab.cli.arguments import Flag, Rest, Switch, Word
from lab.cli.options import BackendName, ClusterFile, Explain, GpuMode, RunsDir, Share, Strict
from lab.cli.outcome import judge, tell
from lab.cli.output import say
from lab.cli.sites import Site, find_site, in_turn
from lab.cli.terms import check_joins, resumed
from lab.cli.terms import terms as terms_of
from lab.cli.times import duration
from lab.cli.values import one_of
from lab.config import load_cluster
from lab.errors import InputError, InterruptError
from lab.placement.start_schedule import parse_start
from lab.run import project
from lab.run.conduct import conduct
from lab.run.directory import RunDir, runs_dir
from lab.run.faulting import asked, check_followed
from lab.run.launch import Order, prepare
from lab.run.program import names_a_program, read_program
from lab.run.standing import Volumes
from lab.run.summary import Summary, summarize
from lab.run.telemetry import followed
from lab.task.experiments import EXPERIMENTS, ProgramFlag
from lab.task.faults import Fault, concrete
from lab.task.policy import Policy, parse_policy
from lab.task.protocol import STALL_S
from lab.tf_versions import CURRENT, HERITAGE, IMAGES


def program_flags(experiment: str | None) -> Mapping[str, ProgramFlag]:
    """The flags of an experiment's program; of all of them where none is named."""
    if experiment is not None and names_a_program(experiment):
        return {}
    if experiment is not None and experiment in EXPERIMENTS:
        return EXPERIMENTS[experiment].flags
    return {name: flag for each in EXPERIMENTS.values() for name, flag in each.flags.items()}


def command(
    *,
    experiment: Annotated[
        str,
        Word(
            "an experiment (`lab experiments` lists them), or the path of your own program",
            shows="EXPERIMENT|PROGRAM",
        ),
    ],
    backend: BackendName = AUTO,
    cluster: ClusterFile = None,
    gpus: GpuMode = AUTO,
    explain: Explain = False,
    strict: Strict = False,
    share: Share = False,
    data_dir: Annotated[
        str | None, Flag("your own data, in the four IDX files", shows="DIR")
    ] = None,
    keep: Annotated[bool, Switch("leave the environment up that this run boots")] = False,
    detach: Annotated[
        bool, Switch("leave it as soon as it has begun; `lab attach` follows it", short="-d")
    ] = False,
    wait: Annotated[bool, Switch("wait for the runs that are ahead in this environment")] = False,
    stall: Annotated[
        float,
        Flag("fail when no step is made for so long: 90s, 5m; 0: never", duration, shows="TIME"),
    ] = STALL_S,
    on_failure: Annotated[
        Policy | None,
        Flag(
            "when a task fails: fail (the default), restart, restart:N or continue",
            parse_policy,
            shows="WHAT",
        ),
    ] = None,
    start: Annotated[
        Mapping[str, str] | None,
        Flag(
            "tasks that start later: worker-1: 10s; worker-2: after 500 steps",
            parse_start,
            shows="SCHEDULE",
        ),
    ] = None,
    ready_within: Annotated[
        float | None,
        Flag("fail when a program is not ready by then (default: 120s)", duration, shows="TIME"),
    ] = None,
    fault: Annotated[
        tuple[Fault, ...] | None,
        Flag(
            "what is done to it: kill worker-1 after 500 steps; cut:5s tf2", asked, shows="FAULTS"
        ),
    ] = None,
    listing: Annotated[
        bool, Switch("run your program as it was printed in 2017, with TensorFlow 1's API")
    ] = False,
    faithful: Annotated[
        bool, Switch("of --listing: leave polls of 30 seconds, and go on from old checkpoints")
    ] = False,
    mend: Annotated[
        bool, Switch("of --listing: mend the known faults of printed synchronous programs")
    ] = False,
    tensorflow: Annotated[
        str | None,
        Flag(
            f"of your own program: {CURRENT.tensorflow}, or {HERITAGE.tensorflow} with Estimator",
            one_of(*IMAGES),
            shows="VERSION",
        ),
    ] = None,
    resume: Annotated[
        str | None, Flag("go on from the checkpoints of this run", shows="RUN")
    ] = None,
    json: Annotated[bool, Switch("print the summary as the last line of stdout")] = False,
    runs_dir_: RunsDir = None,
    rest: Annotated[
        tuple[str, ...], Rest("flags of the programs, see `lab experiments`", program_flags)
    ] = (),
) -> None:
    """Train an experiment from its start to its end."""
    _check_switches(experiment, listing=listing, faithful=faithful, mend=mend)
    own = None
    if names_a_program(experiment):
        own = read_program(experiment, listing=listing, argv=rest)
        own = replace(own, faithful=faithful, mend=mend)
    path = project.cluster_path(cluster)
    described = load_cluster(path)
    root = project.find_root(path)
    if own is not None:
        wanted = project.experiment_of(own, described, tensorflow or CURRENT.tensorflow)
    else:
        wanted = project.experiment(experiment)
        if tensorflow not in {None, wanted.tensorflow}:
            what = f"experiment {experiment!r} needs TensorFlow {wanted.tensorflow}"
            raise InputError(what, "leave out --tensorflow")
        project.check_jobs(wanted, described, path, root)
        project.check_program(wanted, root)
    data = project.check_data_dir(data_dir, wanted)
    home = runs_dir(runs_dir_)
    draft = planning.draft(described, gpus, explain=explain, tensorflow=wanted.tensorflow)
    plan = draft.plan
    terms = terms_of(
        wanted,
        described,
        plan,
        own=own is not None,
        policy=on_failure,
        start=start or {},
        ready_s=ready_within,
        stall_s=stall,
        faults=fault or (),
    )
    argv: tuple[str, ...] = (*wanted.args, *rest)
    known = backends()
    resumes = None
    if resume is not None:
        resumes, argv = resumed(resume, home, wanted, rest, data, ask=Volumes(lambda: known))
    check_joins(wanted, argv, plan, terms.start, data)
    find = partial(
        find_site,
        backend,
        draft,
        known,
        description=str(path),
        root=root,
        home=home,
        say=say,
        heed=partial(draft.heed, strict=strict),
        share=share,
    )
    site = find()
    order = Order(
        experiment=wanted,
        argv=argv,
        plan=plan,
        root=root,
        cluster_file=path,
        data_dir=project.data_dir_inside(data, site.backend.name, root),
        program=own,
        terms=terms,
        resumes=resumes,
    )
    if detach:
        check_followed(map(concrete, terms.faults))

    def once(site: Site, begin: Say) -> None:
        run = prepare(order, home)
        begin(run.run_id)
        say(f"run {run.run_id}: {run.path}")
        for line in own.notes() if own is not None else ():
            say(line)
        _train(run, site, keep=keep, detach=detach, json=json)

    in_turn(site, find, once, wait=wait, say=say)


def _train(run: RunDir, site: Site, *, keep: bool, detach: bool, json: bool) -> None:
    try:
        summary = _conduct(run, site, keep=keep, detach=detach)
    except KeyboardInterrupt:
        if not run.path.is_dir():  # it did not start
            raise
        tell(summarize(run), json=json)
        raise InterruptError(
            f"run {run.run_id} was interrupted", f"see it again with `lab show {run.run_id}`"
        ) from None
    if detach:
        say(f"run {run.run_id} goes on; follow it with `lab attach {run.run_id}`")
        print(summary.to_json() if json else run.run_id)
        return
    tell(summary, json=json)
    judge(run, summary)


def _check_switches(word: str, *, listing: bool, faithful: bool, mend: bool) -> None:
    """See that the switches of a listing are given for one; they mean nothing to anything else."""
    for name, given in (("--faithful", faithful), ("--mend", mend)):
        if given and not listing:
            raise InputError(f"{name} is for printed programs", "add --listing, or leave it out")
    if listing and not names_a_program(word):
        what = f"--listing: {word} is an experiment of the lab"
        raise InputError(what, "name the path of a printed program")


def _conduct(run: RunDir, site: Site, *, keep: bool, detach: bool) -> Summary:
    return conduct(
        run,
        boot=lambda defer: site.boot(defer, say),
        found=site.found,
        keep=keep,
        detach=detach,
        view=lambda: followed(run),
        say=say,
    )
