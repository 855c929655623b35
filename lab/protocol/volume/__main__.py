"""The command line for a run volume: `python -m lab.protocol.volume`.

The client calls it in a container that has the run volume::

    submit REQUEST              submit a request (JSON) to the agents; the run's program/, files/
                                and checkpoints/ must be in incoming/<run_id>/
    cancel RUN REASON           ask the agents to end a run
    kill RUN REASON             the same, at once: programs cannot save anything
    fault RUN FAULT             inject a fault into a run (`lab.protocol.experiments.faults`)
    requests                    print all requests, one line of JSON each, oldest first
    collected RUN DIRECTORY     note the run store into which the whole run was collected
    collected                   print these notes, as a JSON object
    time                        print the time of the agents, in seconds since the epoch
    ship RUN OFFSETS... [--follow [--leash]] [--all-sizes] [--rest]
                                stream a run, as frames (`lab.protocol.volume.framing`); the offsets
                                are one or more JSON arguments; --leash: end when standard input
                                closes, because its reader has ended; --rest: send all files even
                                if a task has not ended, because its agent has ended

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 another run is under way, 4 no such run.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.base.variables import LAB_RUNS
from lab.protocol.volume import control
from lab.protocol.volume.framing import encode_frame
from lab.protocol.volume.layout import Chunk, Volume
from lab.protocol.volume.transfer import stream

_SWITCHES = frozenset({"--follow", "--leash", "--all-sizes", "--rest"})
EXIT_FAILED, EXIT_USAGE = 1, 2


_EXIT_CODES = {control.VolumeBusy: control.EXIT_BUSY, control.NoSuchRun: control.EXIT_NO_SUCH_RUN}


def main(argv: Sequence[str], root: Path) -> int:
    """Execute one command; return its exit code."""
    volume = Volume(root)
    try:
        match argv:
            case ["ship", run_id, *arguments]:
                _ship(volume, run_id, arguments)
            case _:
                sys.stdout.write(control.execute(volume, argv))
    except (control.VolumeBusy, control.NoSuchRun, ValueError) as error:
        return _print_error(_EXIT_CODES.get(type(error), EXIT_USAGE), str(error))
    except OSError as error:
        return _print_error(EXIT_FAILED, f"the run volume {root} failed: {error}")
    return 0


def _ship(volume: Volume, run_id: str, arguments: Sequence[str]) -> None:
    switches = {argument for argument in arguments if argument.startswith("--")}
    # Several arguments, because the size of one is limited.
    parts = [json.loads(argument) for argument in arguments if argument not in switches]
    if not parts or not switches <= _SWITCHES:
        raise ValueError(control.USAGE)
    chunks = stream(
        volume,
        run_id,
        {path: size for part in parts for path, size in part.items()},
        follow="--follow" in switches,
        all_sizes="--all-sizes" in switches,
        rest="--rest" in switches,
    )
    _to_stdout(_leashed(chunks) if "--leash" in switches else chunks)


def _leashed(chunks: Iterator[Chunk | None]) -> Iterator[Chunk | None]:
    """The same chunks, until standard input closes.

    A container engine continues to read the output after the caller has ended, so no write fails.
    """
    for chunk in chunks:
        readable, _, _ = select.select([sys.stdin], [], [], 0)
        if readable and not os.read(sys.stdin.fileno(), 1024):
            return
        yield chunk


def _to_stdout(chunks: Iterator[Chunk | None]) -> None:
    # The reader may end at any time; this is not an error.
    with contextlib.suppress(BrokenPipeError):
        for chunk in chunks:
            sys.stdout.buffer.write(encode_frame(chunk))
            sys.stdout.buffer.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(code: int, line: str) -> int:
    sys.stderr.write(" ".join(line.split()) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(os.environ[LAB_RUNS])))
