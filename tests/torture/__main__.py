"""The command line of the harness; see the docstring of the package."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

import tests.torture
from tests.torture.case import BACKENDS, HOSTILE_RUNS, LOCAL, Fault, Policy
from tests.torture.clock import NoCompilerError
from tests.torture.engine import EngineError
from tests.torture.results import CLEAN_END, FAULTS, HOSTILE, read, totals
from tests.torture.running import RefusedError
from tests.torture.session import ROWS, NoBackendError, Order, backends_of, run_all, tools_for

INTERRUPTED: Final = 130


def main(argv: Sequence[str]) -> int:
    """Make the requested runs; 1 where something was found."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    both = BACKENDS if arguments.backend == "both" else (arguments.backend,)
    order = Order(
        campaign=arguments.campaign,
        backends=both[:1] if arguments.campaign == CLEAN_END else both,
        faults=arguments.faults,
        policies=arguments.policies,
        seeds=arguments.seed or (),
        again=arguments.again,
    )
    try:
        with tools_for(backends_of(order, read(ROWS))) as tools:
            rows = run_all(
                order,
                ROWS,
                tools,
                say=_say,
                runs=arguments.runs,
                minutes=arguments.minutes,
                as_json=arguments.json,
            )
    except KeyboardInterrupt:
        _say("interrupted: the run under way is dropped, and nothing of it is left")
        return INTERRUPTED
    except (NoBackendError, EngineError, NoCompilerError, RefusedError) as error:
        _say(f"error: {error}")
        return 1
    _say(totals(rows))
    return int(any(row.bad for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description=tests.torture.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--runs", type=int, help="at most so many (default: until Ctrl-C)")
    parser.add_argument("--minutes", type=float, help="begin none after that time")
    parser.add_argument("--backend", choices=(*BACKENDS, "both"), default="both")
    parser.add_argument(
        "--faults",
        type=_several(Fault),
        default=tuple(Fault),
        help=f"some of {', '.join(Fault)}; all by default",
    )
    parser.add_argument(
        "--policies",
        type=_several(Policy),
        default=(Policy.FAIL,),
        help=f"some of {', '.join(Policy)} (default: fail)",
    )
    parser.add_argument("--seed", type=int, nargs="+", help="these cases, whatever they are")
    parser.add_argument("--again", action="store_true", help="those that went wrong, once more")
    parser.add_argument(
        "--clean-end",
        action="store_const",
        dest="campaign",
        const=CLEAN_END,
        default=FAULTS,
        help=f"how synchronous trainings end; on {LOCAL} unless --backend says otherwise",
    )
    parser.add_argument(
        "--hostile",
        action="store_const",
        dest="campaign",
        const=HOSTILE,
        help=f"{HOSTILE_RUNS} runs of programs that do harm, with faults",
    )
    parser.add_argument("--json", action="store_true", help="each run as a line of JSON on stdout")
    return parser


def _several(of: type[Fault] | type[Policy]) -> Callable[[str], tuple[Fault | Policy, ...]]:
    def parse(text: str) -> tuple[Fault | Policy, ...]:
        try:
            return tuple(of(word) for word in text.split(","))
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}; there are {', '.join(of)}") from error

    return parse


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    # A second Ctrl-C must not interrupt the cleanup.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
