"""The runs of a sweep, one after the other; those with as many workers share an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from lab import signals
from lab.backends import Environment, Say
from lab.errors import LabError
from lab.run.conduct import conduct, take_down
from lab.run.directory import RunDir
from lab.run.launch import Order, prepare
from lab.sweep.grid import Point
from lab.sweep.made import Made
from lab.sweep.progress import Counter, Watcher


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a sweep that is made in one environment.

    Attributes:
        points: What is to be run.
        order: What is asked for at a point.
        found: The environment that is up already, and stays; None: one is booted, and taken down.
        boot: Boots it: receives what `conduct` gives, and who is told of its progress.
        turn: Keeps other runs of this user out of it meanwhile.
    """

    points: Sequence[Point]
    order: Callable[[Point], Order]
    found: Environment | None
    boot: Callable[[Callable[[], None], Say], Environment]
    turn: Callable[[], AbstractContextManager[object]] = nullcontext


def make(
    share: Share, home: Path, counter: Counter, made: list[Made], begun: list[RunDir] | None = None
) -> None:
    """Make the runs of a share.

    Args:
        share: It.
        home: The directory of all runs.
        counter: Is told what is under way.
        made: Receives each run that has ended, in whatever state.
        begun: Receives each run before it starts, also one that then breaks off.

    Raises:
        LabError: A run could not be run, or the environment went; nothing is left up.
        KeyboardInterrupt: The user ended it; nothing is left up.
    """
    environment, run = share.found, None

    def boot(defer: Callable[[], None]) -> Environment:
        nonlocal environment
        environment = share.boot(defer, counter.say)
        return environment

    with signals.as_interrupt(), share.turn():
        try:
            for point in share.points:
                counter.begin(point.line())
                run = prepare(share.order(point), home)
                if begun is not None:
                    begun.append(run)
                summary = conduct(
                    run,
                    boot=boot,
                    found=environment,
                    keep=True,
                    view=lambda: nullcontext(Watcher(counter.say)),
                    say=counter.say,
                )
                made.append(Made(point, summary))
                counter.end(made[-1])
                if len(made) == 1 and not made[0].succeeded:
                    raise LabError(
                        f"the first run {summary.state}, and the others are left out",
                        f"see `lab show {summary.run_id}`",
                    )
        finally:
            if share.found is None and environment is not None and run is not None:
                with signals.undisturbed():
                    take_down(run, environment, counter.say)
