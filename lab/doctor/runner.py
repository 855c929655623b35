"""A check, and the function that runs a table of checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab.doctor.host import Host
from lab.doctor.model import Finding, Need, Outcome, skipped, warning
from lab.errors import LabError
from lab.text import short


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table.

    Attributes:
        name: Its unique name.
        needed_for: The purpose that needs the check to pass.
        judge: Returns the outcome, and changes nothing. Its parameters are facts of the host.
        needs: Earlier checks in the table. The check runs only if all of them have passed.
        on_error: Replaces the judge if a look-up fails; its parameter `error` is the error. Without
            it the outcome is a warning.
        without: A line that replaces the checks that need this one, if this one does not pass.
        vital: Whether to stop all checks if this one does not pass.
    """

    name: str
    needed_for: Need
    judge: Callable[..., Outcome]
    needs: Sequence[str] = ()
    on_error: Callable[..., Outcome] | None = None
    without: str = ""
    vital: bool = False

    def run(self, host: Host) -> Outcome:
        """Look up the facts, and judge them."""
        try:
            facts = _facts(self.judge, host)
        except (LabError, OSError) as error:
            judge = self.on_error or judge_error
            return self._adapted(
                replace(judge(**_facts(judge, host, error=error)), stops=True), host
            )
        return self._adapted(self.judge(**facts), host)

    def _adapted(self, outcome: Outcome, host: Host) -> Outcome:
        """Return the outcome with the commands and files of this engine in its fix."""
        if self.needed_for not in {Need.COMPOSE, Need.GPUS} or "docker" not in outcome.fix:
            return outcome
        return replace(outcome, fix=host.engine_kind.fix(outcome.fix))


def run_checks(
    table: Mapping[str, Sequence[Check]], watch: Callable[[str], None]
) -> Iterator[Finding]:
    """Run all checks of a table, and yield each finding as soon as it is known.

    Args:
        table: Checks, by area.
        watch: Receives the name of each check before it runs; some checks take seconds.

    Yields:
        The findings, in the order of the table.
    """
    host = Host()
    for area, checks in table.items():
        for check in checks:
            if not host.passed.issuperset(check.needs):
                continue
            watch(f"{area}: {check.name}")
            outcome = check.run(host)
            yield Finding(area, check.name, check.needed_for, outcome)
            if not outcome.stops:
                host.passed.add(check.name)
            elif check.vital:
                return
            elif check.without:
                yield Finding(area, "further checks", check.needed_for, skipped(check.without))


def judge_error(error: LabError | OSError) -> Outcome:
    """Return the outcome of a failed look-up, if its check has no `on_error`."""
    if isinstance(error, LabError):
        return warning(error.what, error.fix)
    if isinstance(error, TimeoutError):
        return warning(str(error), "see `dmesg | tail` and `mount`")
    return warning(f"{short(str(error.filename))}: {error.strerror}", "fix its permissions")


def _facts(judge: Callable[..., Outcome], host: Host, **given: object) -> dict[str, Any]:
    """Look up the facts that are the parameters of a judge."""
    names = inspect.signature(judge).parameters
    return {name: given[name] if name in given else getattr(host, name) for name in names}
