"""The command line of the harness; see the docstring of the package."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Final

import tests.torture
from benchmarks.engine import ready
from benchmarks.trainings import workplace
from lab.run.prepare import git_state
from tests.support import engine as engines
from tests.support.commands import ROOT
from tests.torture import results
from tests.torture.case import BACKENDS, COMPOSE, FAULTS_ON, Case, Fault, Policy, draw
from tests.torture.clock import NoCompilerError
from tests.torture.judging import GOOD
from tests.torture.results import Row
from tests.torture.running import RefusedError, Tools, lacks, ran

INTERRUPTED: Final = 130
FILE: Final = ROOT / "build/torture.jsonl"


def main(argv: Sequence[str], file: Path = FILE) -> int:
    """Make the requested runs; 1 where something was found."""
    parser = _parser()
    asked = parser.parse_args(argv)
    reasons = {
        lacks(backend, fault)
        for backend in asked.backend
        for fault in asked.faults
        if fault in FAULTS_ON[backend]
    }
    if "" not in reasons:
        parser.error(f"nothing can run here: {', '.join(sorted(reasons)) or 'no such fault'}")
    rows: list[Row] = []
    try:
        with ExitStack() as stack:
            tools: dict[str, Tools] = {}
            until = time.monotonic() + 60 * asked.minutes
            for case in cases(asked, results.read(file)):
                if len(rows) >= asked.runs or time.monotonic() > until:
                    break
                if reason := lacks(case.backend, case.fault):
                    _say(f"passed over: {case.line()}: {reason}")
                    continue
                if case.backend not in tools:
                    made = stack.enter_context(_on_engine()) if case.backend == COMPOSE else Tools()
                    tools[case.backend] = made
                rows.append(_one(case, tools[case.backend]))
                results.keep(file, rows[-1])
    except KeyboardInterrupt:
        _say("interrupted: the run under way is dropped, and nothing of it is left")
        return INTERRUPTED
    except (engines.NoEngine, NoCompilerError, RefusedError) as error:
        _say(f"error: {error}")
        return 1
    for line in results.summary(rows):
        _say(line)
    return int(any(row["verdict"] not in GOOD for row in rows))


def cases(asked: argparse.Namespace, rows: Sequence[Row]) -> Iterator[Case]:
    """The cases of a request, one after the other; without seeds endless, after those of before."""
    if asked.seed:
        yield from map(draw, asked.seed)
        return
    for case in map(draw, count(max((row["seed"] for row in rows), default=-1) + 1)):
        wanted = case.backend in asked.backend and case.fault in asked.faults
        if wanted and case.policy in asked.policies:
            yield case


def _one(case: Case, tools: Tools) -> Row:
    made = {"date": time.strftime("%Y-%m-%d"), "git": git_state(ROOT)}
    with ran(case, tools) as (place, seen, judgement):
        row = results.row_of(case, judgement, seconds=seen.seconds, **made)
        _say(f"{case.line()} → {judgement.outcome}: {judgement.verdict}")
        for detail in judgement.details:
            _say(f"    {detail}")
        if judgement.verdict not in GOOD:
            _say(f"    what it left is in {place.folder}")
    return row


@contextmanager
def _on_engine() -> Iterator[Tools]:
    """An engine that has the image of this very state of the sources.

    Raises:
        engines.NoEngine: No engine answers, or the image cannot be built.
    """
    import docker  # noqa: PLC0415  (only where there is an engine)

    with ExitStack() as stack:
        place = stack.enter_context(workplace())
        if why_not := stack.enter_context(ready(place)):
            raise engines.NoEngine(f"no runs on compose: {why_not}")
        environ = dict(place.environ)
        names = ("DOCKER_HOST", "DOCKER_CONFIG", "PATH")
        variables = {name: environ[name] for name in names if name in environ}
        client = docker.from_env(environment=environ)
        stack.callback(client.close)
        yield Tools(variables, client)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description=tests.torture.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    endless = float("inf")
    parser.add_argument("--runs", type=int, default=endless, help="the most trainings")
    parser.add_argument("--minutes", type=float, default=endless, help="begin none after that time")
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--faults", nargs="+", type=Fault, choices=[*Fault], default=[*Fault])
    parser.add_argument(
        "--policies", nargs="+", type=Policy, choices=[*Policy], default=[Policy.FAIL]
    )
    parser.add_argument("--seed", type=int, nargs="+", help="these cases, whatever they are")
    return parser


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    # A second Ctrl-C must not interrupt the cleanup.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main(sys.argv[1:]))
