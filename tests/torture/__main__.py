"""The command line of the harness; see the docstring of the package."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import count, islice
from types import FrameType
from typing import Final

import tests.torture
from benchmarks.engine import ready
from benchmarks.trainings import workplace
from tests.support import engine as engines
from tests.support.commands import ROOT
from tests.torture.case import BACKENDS, COMPOSE, FAULTS_ON, Case, Fault, Policy, draw
from tests.torture.clock import NoCompilerError
from tests.torture.judging import GOOD, Verdict
from tests.torture.running import RefusedError, Tools, lacks, ran

INTERRUPTED: Final = 130
FILE: Final = ROOT / "build/torture.jsonl"


def main(argv: Sequence[str]) -> int:
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
    found = Counter[Verdict]()
    FILE.parent.mkdir(exist_ok=True)
    try:
        with ExitStack() as stack:
            tools: dict[str, Tools] = {}
            for case in islice(cases(asked), asked.runs):
                if case.backend not in tools:
                    made = stack.enter_context(_on_engine()) if case.backend == COMPOSE else Tools()
                    tools[case.backend] = made
                found[_one(case, tools[case.backend])] += 1
    except KeyboardInterrupt:
        _say("interrupted: the run under way is dropped, and nothing of it is left")
        return INTERRUPTED
    except (engines.NoEngine, NoCompilerError, RefusedError) as error:
        _say(f"error: {error}")
        return 1
    counts = ", ".join(f"{number} {verdict}" for verdict, number in found.items())
    _say(f"{found.total()} runs: {counts}")
    return int(not found.keys() <= GOOD)


def cases(asked: argparse.Namespace) -> Iterator[Case]:
    """The cases of a request, one after the other, endless without seeds."""
    if asked.seed:
        yield from map(draw, asked.seed)
        return
    for case in map(draw, count(asked.first)):
        wanted = case.backend in asked.backend and case.fault in asked.faults
        if wanted and case.policy in asked.policies and not lacks(case.backend, case.fault):
            yield case


def _one(case: Case, tools: Tools) -> Verdict:
    with ran(case, tools) as (place, seen, judgement):
        row = {**asdict(case), **asdict(judgement), "seconds": seen.seconds}
        with FILE.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps({"date": time.strftime("%Y-%m-%d"), **row}) + "\n")
        _say(f"{case.line()} → {judgement.outcome}: {judgement.verdict}")
        for detail in judgement.details:
            _say(f"    {detail}")
        if judgement.verdict not in GOOD:
            _say(f"    what it left is in {place.folder}")
    return judgement.verdict


@contextmanager
def _on_engine() -> Iterator[Tools]:
    """An engine that has the image of this very state of the sources.

    Raises:
        engines.NoEngine: No engine answers, or the image cannot be built.
    """
    with workplace() as place, ready(place) as why_not:
        if why_not:
            raise engines.NoEngine(f"no runs on compose: {why_not}")
        with Tools.of(place.environ) as tools:
            yield tools


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description=tests.torture.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--runs", type=int, help="the most trainings")
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--faults", nargs="+", type=Fault, choices=[*Fault], default=[*Fault])
    parser.add_argument(
        "--policies", nargs="+", type=Policy, choices=[*Policy], default=[Policy.FAIL]
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed")
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
