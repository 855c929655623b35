"""Makes runs one after the other: selects, reports and stores them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.engine import ready
from benchmarks.trainings import workplace
from lab.tf_versions import CURRENT
from tests import engine as engines
from tests.torture import results
from tests.torture.case import (
    CLEAN_END_RUNS,
    COMPOSE,
    HOSTILE_RUNS,
    Case,
    Fault,
    Policy,
    clean_end,
    draw,
    hostile,
    wanted,
)
from tests.torture.engine import OwnEngine, own_engine
from tests.torture.judging import judge
from tests.torture.place import ROOT
from tests.torture.results import CLEAN_END, FAULTS, HOSTILE, Row
from tests.torture.running import Tools, lacks, ran

ROWS: Final = ROOT / "build" / "torture.jsonl"
_OPTION: Final = re.compile(r"--[a-z][a-z-]+")


class NoBackendError(Exception):
    """A backend cannot be used here; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Order:
    """The requested runs.

    Attributes:
        campaign: `faults`, `clean end` or `hostile`.
        backends: Their backends.
        faults: Their faults.
        policies: Their policies.
        seeds: These and no others; empty: those that have not run yet.
        again: Instead, those whose newest run is a finding.
    """

    campaign: str
    backends: Sequence[str]
    faults: Sequence[Fault] = tuple(Fault)
    policies: Sequence[Policy] = (Policy.FAIL,)
    seeds: Sequence[int] = ()
    again: bool = False


def cases(order: Order, rows: Sequence[Row]) -> Iterator[Case]:
    """The cases of a request, one after the other; without a limit endless."""
    if order.campaign == CLEAN_END:
        seeds: Iterable[int] = (s for s in _seeds(order, rows, CLEAN_END_RUNS))
        yield from (clean_end(seed, order.backends[0]) for seed in seeds)
        return
    if order.campaign == HOSTILE:
        several = order.backends
        for seed in _seeds(order, rows, HOSTILE_RUNS):
            yield hostile(seed, several[seed % len(several)])
        return
    for seed in _seeds(order, rows, None):
        case = draw(seed)
        named = order.seeds or order.again
        if named or wanted(case, order.backends, order.faults, order.policies):
            yield case


def backends_of(order: Order, rows: Sequence[Row]) -> frozenset[str]:
    """The backends that an order needs."""
    if order.seeds or order.again:
        return frozenset(case.backend for case in cases(order, rows))
    return frozenset(order.backends)


def _seeds(order: Order, rows: Sequence[Row], below: int | None) -> Iterator[int]:
    if order.seeds:
        yield from order.seeds
    elif order.again:
        yield from results.findings(rows, order.campaign)
    else:
        for seed in results.unseen(rows, order.campaign):
            if below is not None and seed >= below:
                return
            yield seed


def run_all(
    order: Order,
    file: Path,
    tools: Tools,
    *,
    say: Callable[[str], None],
    runs: int | None,
    minutes: float | None,
    as_json: bool = False,
) -> list[Row]:
    """Run case after case, and store each result at once.

    Args:
        order: The requested runs.
        file: The results.
        tools: The shared parts.
        say: Receives a line for each.
        runs: The maximum number; None: no limit.
        minutes: Start none after this time; None: no limit.
        as_json: Print each row as a line of JSON on standard output.

    Raises:
        KeyboardInterrupt: The run under way was dropped and cleared away.
    """
    began = time.monotonic()
    done: list[Row] = []
    refused: set[str] = set()
    for case in cases(order, results.read(file)):
        if runs is not None and len(done) >= runs:
            break
        if minutes is not None and time.monotonic() - began > 60 * minutes:
            break
        reason = lacks(case, tools.flags)
        if reason is not None:
            if reason not in refused:
                say(f"passed over, with all others of its kind: {case.line()}: {reason}")
            refused.add(reason)
            if order.seeds or order.again or order.campaign != FAULTS:
                continue
            if _nothing_is_left(order, tools.flags):
                break
            continue
        row = one(case, tools, campaign=order.campaign, say=say)
        results.append(file, row)
        done.append(row)
        if as_json:
            print(row.to_json(), flush=True)
    return done


def _nothing_is_left(order: Order, flags: Collection[str]) -> bool:
    """Whether no case of an order can ever run here, by a look at many."""
    many = (draw(seed) for seed in range(2000))
    asked = (c for c in many if wanted(c, order.backends, order.faults, order.policies))
    return all(lacks(case, flags) is not None for case in asked)


def one(case: Case, tools: Tools, *, campaign: str, say: Callable[[str], None]) -> Row:
    """Run one case and judge it."""
    date = time.strftime("%Y-%m-%d", time.gmtime())
    commit = commit_of(ROOT)
    with ran(case, tools) as found:
        judgement = judge(case, found.seen)
        row = results.row_of(
            case,
            judgement,
            campaign=campaign,
            seconds=found.seen.seconds,
            commit=commit,
            date=date,
        )
        found.keep = row.bad
        say(_line(case, row))
        if row.bad:
            for detail in row.details:
                say(f"    {detail}")
            say(f"    what it left is in {found.place.folder}")
    return row


def _line(case: Case, row: Row) -> str:
    took = "" if row.seconds is None else f", {row.seconds:.1f} s after the fault"
    return f"{case.line()} → {row.outcome}, exit code {row.exit_code}{took}: {row.verdict}"


def flags_of_run() -> frozenset[str]:
    """The options of `lab run`, by its help."""
    done = subprocess.run(
        [sys.executable, "-m", "lab", "run", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return frozenset(_OPTION.findall(done.stdout))


def commit_of(root: Path) -> str:
    """The commit that is checked out, with a `+` where the lab has changed since."""
    try:
        head = _git(root, "rev-parse", "--short", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", "lab", "scripts")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@contextmanager
def tools_for(backends: Collection[str]) -> Iterator[Tools]:
    """The requirements of these backends, for as long as the block lasts.

    Raises:
        NoBackendError: No engine answers, or the image cannot be built.
    """
    flags = flags_of_run()
    if COMPOSE not in backends:
        yield Tools(flags)
        return
    import docker  # noqa: PLC0415  (only where there is an engine)

    with ExitStack() as stack:
        environ = stack.enter_context(_engine())
        names = ("DOCKER_HOST", "DOCKER_CONFIG", "PATH")
        variables = {name: environ[name] for name in names if name in environ}
        client = docker.from_env(environment=dict(environ))
        stack.callback(client.close)
        image = os.environ.get("LAB_IMAGE") or CURRENT.name(gpus=False)
        made: list[OwnEngine] = []

        def own() -> OwnEngine:
            # Once for all runs that need it: the image takes a minute to be copied.
            if not made:
                made.append(stack.enter_context(own_engine(image, environ)))
            return made[0]

        yield Tools(flags, variables, client, own)


@contextmanager
def _engine() -> Iterator[Mapping[str, str]]:
    """The variables by which an engine is found that has the image.

    It is built from this very state of the sources, unless `LAB_IMAGE` names another.
    """
    if "LAB_IMAGE" in os.environ:
        try:
            with engines.an_engine() as found:
                yield found.environment
        except engines.NoEngine as error:
            raise NoBackendError(f"no runs on compose: {error}") from error
        return
    with workplace() as place, ready(place) as why_not:
        if why_not:
            raise NoBackendError(f"no runs on compose: {why_not}")
        yield dict(place.environ)
