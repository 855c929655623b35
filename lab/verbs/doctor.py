"""`lab doctor`.

Examples:
    # run all checks; they change nothing
    lab doctor
    # as JSON; exit code 1 if a required check fails
    lab doctor --json
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.backends.checks import Check, Outcome
from lab.base.errors import LabError
from lab.base.options import verb
from lab.base.variables import LAB_RUNS_DIR
from lab.checks import host as hosts
from lab.checks.report import GPUS, HOST, Report, gpu_area
from lab.verbs.printing import Called, Tabular, print_result, prints

if TYPE_CHECKING:
    from rich.text import Text  # the package may be missing


@dataclass(frozen=True, slots=True, repr=False)
class Examined(Tabular):
    """The checks of this host.

    Attributes:
        report: The outcome of each check, and what can be used.
    """

    report: Report

    def check(self) -> None:
        """Check that this host can be used.

        Raises:
            LabError: A required check fails, or no backend can be used.
        """
        if names := ", ".join(fault.where for fault in self.report.faults()):
            raise LabError(f"required checks fail: {names}", "fix them as shown above")
        if not self.report.has_backend:
            raise LabError("no backend can be used on this host", "fix one backend as shown above")

    def to_json(self) -> dict[str, Any]:
        """Return all of it as a JSON value."""
        return self.report.as_json()

    def _entries(self) -> Any:  # noqa: ANN401  (a list of JSON objects)
        """Return the checks."""
        return self.to_json()["findings"]

    def _shown(self) -> Iterator[Text | str]:
        from lab.checks.view import lines  # noqa: PLC0415

        for area, outcomes in groupby(self.report.outcomes, lambda each: each.area):
            yield area
            for each in outcomes:
                yield from lines(each, None)
            yield ""
        yield self.report.sentence()


@verb
def doctor(
    *,
    show: Callable[[Outcome], None] = lambda _: None,
    watch: Callable[[str], None] = lambda _: None,
) -> Examined:
    """Check this host and suggest fixes; a check that fails is a result.

    Args:
        show: Receives each outcome as soon as it is known.
        watch: Receives the name of each check before it runs; some checks take seconds.
    """
    report = Report(show, watch)
    _examine(report)
    return Examined(report)


def _examine(report: Report) -> None:
    """Run all checks: of the host, then of its GPUs, then of each backend."""
    installed = Check("packages", lambda: hosts.check_packages(hosts.requirements()))
    if not report.examine(HOST, [installed]):
        return
    # Imported here: their packages may be missing.
    from lab.backends.names import known  # noqa: PLC0415
    from lab.backends.registry import backends  # noqa: PLC0415
    from lab.backends.state import state_directory  # noqa: PLC0415
    from lab.checks import gpus  # noqa: PLC0415
    from lab.cluster.project import DEFAULT_CLUSTER  # noqa: PLC0415
    from lab.runner.store.directory import DEFAULT_RUNS_DIR  # noqa: PLC0415

    report.watch("GPUs and config")
    host = hosts.examine_host(Path(DEFAULT_CLUSTER))
    report.wants_gpus = host.wants_gpus
    runs = Path(os.environ.get(LAB_RUNS_DIR) or DEFAULT_RUNS_DIR)
    report.examine(HOST, hosts.checks(host.plan, runs=runs, state=state_directory()))
    report.backends = [*known()]
    has_gpus = report.examine(GPUS, gpus.checks(host.inventory))
    for backend in backends():
        if report.examine(backend.name, backend.checks(host)) and has_gpus:
            report.examine(gpu_area(backend.name), backend.gpu_checks())


def _present(examine: Called, *, json: bool) -> None:
    if json:
        print_result(examine(), json=True)
        return
    from lab.checks.view import View  # noqa: PLC0415

    view = View()
    with view.watching() as watch:
        found: Examined = examine(show=view.show, watch=watch)
    view.end(found.report)
    found.check()


command = prints(doctor, _present)
