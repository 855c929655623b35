"""What a check is, and the runner that goes through a table of checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lab.doctor.host import Host
from lab.doctor.model import Finding, Need, Outcome, skipped, warning
from lab.errors import LabError
from lab.task.text import short


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table.

    Attributes:
        name: What is checked; the names of all checks differ.
        needed_for: What cannot do without it.
        judge: Makes an outcome of facts, and has no effect. Its parameters are facts of the host.
        needs: Checks above it. It is made only if all of them have passed.
        on_error: Judges the error of a look-up, in place of the usual warning.
        without: A line in place of the checks that need this one, where it has not passed.
        vital: Whether no other check is made where this one has not passed.
    """

    name: str
    needed_for: Need
    judge: Callable[..., Outcome]
    needs: Sequence[str] = ()
    on_error: Callable[[LabError | TimeoutError], Outcome] | None = None
    without: str = ""
    vital: bool = False

    def run(self, host: Host) -> Outcome:
        """Look up the facts, and judge them."""
        try:
            facts = {name: getattr(host, name) for name in inspect.signature(self.judge).parameters}
        except (LabError, TimeoutError) as error:
            return replace((self.on_error or _usual)(error), stops=True)
        except OSError as error:
            what = f"{short(str(error.filename))}: {error.strerror}"
            return warning(what, "fix its permissions", stops=True)
        return self.judge(**facts)


def run_checks(
    table: Mapping[str, Sequence[Check]], watch: Callable[[str], None]
) -> Iterator[Finding]:
    """Make all checks of a table, and yield each finding as soon as it is known.

    Args:
        table: Checks, by area.
        watch: Receives the name of each check before it is made: some take seconds.

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


def _usual(error: LabError | TimeoutError) -> Outcome:
    if isinstance(error, LabError):
        return warning(error.what, error.mend)
    return warning(str(error), "see `dmesg | tail` and `mount`")
