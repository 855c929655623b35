"""`lab doctor`.

Examples:
    # run all checks; they change nothing
    lab doctor
    # as JSON; exit code 1 if a required check fails
    lab doctor --json
"""

from __future__ import annotations

from lab.console import print_json
from lab.doctor import Report, examine
from lab.errors import LabError
from lab.options.shared import AsJson


def command(*, json: AsJson = False) -> None:
    """Check this host and suggest fixes.

    Raises:
        LabError: A required check fails, or no backend can be used.
    """
    if json:
        report = Report(list(examine()))
        print_json(report.as_json())
    else:
        # Imported here: the package rich may be missing.
        from lab.doctor.view import View  # noqa: PLC0415

        view = View()
        with view.watching() as watch:
            report = Report(view.show(examine(watch)))
        view.end(report)
    if report.ok:
        return
    broken = report.broken()
    if broken:
        names = ", ".join(each.name for each in broken)
        raise LabError(f"required checks fail: {names}", "fix them as shown above")
    raise LabError("no backend can be used on this host", "fix one backend as shown above")
