"""`lab doctor`.

Examples:
    # run all checks; they change nothing
    lab doctor
    # as JSON; exit code 1 if a required check fails
    lab doctor --json
"""

from __future__ import annotations

from lab.console import print_json
from lab.doctor.checks import run_checks
from lab.doctor.model import Report
from lab.errors import LabError
from lab.options.shared import AsJson


def command(*, json: AsJson = False) -> None:
    """Check this host and suggest fixes.

    Raises:
        LabError: A required check fails, or no backend can be used.
    """
    if json:
        report = Report(list(run_checks()))
        print_json(report.as_json())
    else:
        # Imported here: the package rich may be missing.
        from lab.doctor.view import View  # noqa: PLC0415

        view = View()
        with view.watching() as watch:
            report = Report(view.show(run_checks(watch)))
        view.end(report)
    if report.ok:
        return
    broken = report.broken()
    if broken:
        names = ", ".join(each.where for each in broken)
        raise LabError(f"required checks fail: {names}", "fix them as shown above")
    raise LabError("no backend can be used on this host", "fix one backend as shown above")
