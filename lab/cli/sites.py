"""Where runs are made: a backend, and its environment if one is up already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lab.backends import Backend, Environment, Say
from lab.backends.choose import check_same, choose
from lab.backends.locking import Busy
from lab.backends.proof import prove
from lab.cli.planning import Draft
from lab.placement.plan import Plan
from lab.run.homecoming import bring_leftovers_home
from lab.run.run_queue import turn

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Site:
    """Where runs are made.

    Attributes:
        backend: The backend.
        plan: The placement.
        root: The project's directory.
        found: The environment that is up already, and stays; None: one is booted.
        share: Whether another environment may hold the GPUs of one that is booted.
    """

    backend: Backend
    plan: Plan
    root: Path
    found: Environment | None
    share: bool = False

    def boot(self, defer: Callable[[], None], say: Say) -> Environment:
        """Boot an environment and see that its tasks have what the plan says.

        Args:
            defer: From here on its owner takes it down.
            say: Receives lines of progress.

        Raises:
            LabError: It cannot be booted, or is not as planned; nothing is left up.
        """

        def check(environment: Environment) -> None:
            prove(environment, self.plan, say)
            defer()

        return self.backend.up(self.plan, root=self.root, say=say, check=check, share=self.share)


def find_site(
    name: str,
    draft: Draft,
    known: Sequence[Backend],
    *,
    description: str,
    root: Path,
    home: Path,
    say: Say,
    heed: Callable[[], None],
    share: bool = False,
) -> Site:
    """Choose the backend, and see whether what is up already can be used; nothing is started.

    Args:
        name: The backend's name, or `auto`.
        draft: The placement, and what is odd about it.
        known: All backends.
        description: The cluster description's file, for messages.
        root: The project's directory.
        home: Where the runs of an environment that is gone are brought.
        say: Receives which backend it is, and why.
        heed: Says, or refuses, what is odd about the placement; not called where it stands already.
        share: Whether another environment may hold the GPUs of one that is booted.

    Raises:
        LabError: No backend can be used here, or an environment of this name is another one.
    """
    chosen = choose(name, draft.plan, root, known, say)
    if chosen.environment is not None:
        check_same(chosen.environment, draft.plan, description, root)
    else:
        heed()
        bring_leftovers_home(chosen.backend, draft.plan.name, home, say)
    return Site(chosen.backend, draft.plan, root, chosen.environment, share)


def in_turn(
    site: Site,
    find: Callable[[], Site],
    once: Callable[[Site, Say], T],
    *,
    wait: bool,
    say: Say,
) -> T:
    """Make a run when no other one of the same environment is ahead or under way.

    Args:
        site: Where.
        find: Looks for it again: what was waited for may have booted the environment, or removed
            it.
        once: Makes the run; gives the id of the run to its second argument before it starts.
        wait: Wait for the runs that are ahead; otherwise these are an error.
        say: Receives the place in the queue, whenever it changes.

    Raises:
        Busy: Another run is ahead, or under way, and `wait` is not given.
        LabError: As `once` says.
    """
    with turn(site.backend, site.plan.name, wait=wait, say=say) as mine:
        while True:
            try:
                return once(find() if mine.waited else site, mine.begin)
            except Busy:
                # It was another user, who has no ticket here, or a command that is no run.
                if not wait:
                    raise
                mine.wait()
                mine.waited = True
