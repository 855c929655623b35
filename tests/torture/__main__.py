"""The command line of the harness; see the docstring of the package."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import count, islice
from types import FrameType
from typing import Final

import tests.torture
from benchmarks.engine import ready
from benchmarks.trainings import workplace
from tests.support import engine as engines
from tests.torture.case import BACKENDS, COMPOSE, Case, Fault, draw
from tests.torture.running import lacks, run

INTERRUPTED: Final = 130


def main(argv: Sequence[str]) -> int:
    """Make the requested runs; 1 where a fault of lab was found."""
    asked = _asked(argv)
    results = Counter[str]()
    try:
        with ExitStack() as stack:
            start_engine = cache(lambda: _start_engine(stack))
            for case in islice(_cases(asked), asked.runs):
                if case.backend == COMPOSE:
                    start_engine()
                results[_one(case)] += 1
    except KeyboardInterrupt:
        print("interrupted: the run under way is dropped, and nothing of it is left")
        return INTERRUPTED
    except engines.NoEngine as error:
        print(f"error: {error}")
        return 1
    print(", ".join(f"{number} {result}" for result, number in results.items()))
    return int("bad" in results)


def _asked(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description=tests.torture.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, help="the most trainings")
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--faults", nargs="+", type=Fault, choices=[*Fault], default=[*Fault])
    parser.add_argument("--seed", type=int, nargs="+", help="these cases, whatever they are")
    asked = parser.parse_args(argv)
    reasons = {lacks(backend, fault) for backend in asked.backend for fault in asked.faults}
    if "" not in reasons:
        parser.error(f"nothing can run here: {', '.join(sorted(reasons))}")
    return asked


def _cases(asked: argparse.Namespace) -> Iterator[Case]:
    for case in map(draw, asked.seed or count()):
        wanted = case.backend in asked.backend and case.fault in asked.faults
        if asked.seed or (wanted and not lacks(case.backend, case.fault)):
            yield case


def _one(case: Case) -> str:
    judgement = run(case)
    result = "bad" if judgement.faults else "missed" if judgement.missed else "ok"
    print(case, judgement.outcome, result, *judgement.faults, sep="\n    ", flush=True)
    return result


def _start_engine(stack: ExitStack) -> None:
    """Let all commands use an engine that has the image of this very state of the sources."""
    place = stack.enter_context(workplace())
    if why_not := stack.enter_context(ready(place)):
        raise engines.NoEngine(f"no runs on compose: {why_not}")
    names = {"DOCKER_HOST", "DOCKER_CONFIG", "PATH"} & place.environ.keys()
    os.environ.update({name: place.environ[name] for name in names})


def _interrupt(number: int, frame: FrameType | None) -> None:
    # A second Ctrl-C must not interrupt the cleanup.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main(sys.argv[1:]))
