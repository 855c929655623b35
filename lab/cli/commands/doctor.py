"""`lab doctor`."""

from __future__ import annotations

from lab.cli.options import AsJson
from lab.console import print_json
from lab.doctor import Report, examine
from lab.errors import LabError


def command(*, json: AsJson = False) -> None:
    """Say what this box can and cannot do, and the mend for each.

    Raises:
        LabError: Something that is needed fails, or no backend can be used.
    """
    if json:
        report = Report(list(examine()))
        print_json(report.as_json())
    else:
        # Imported here: rich is one of the packages that may be missing.
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
        raise LabError(f"what is needed here fails: {names}", "mend it as the lines above say")
    raise LabError("no backend can be used here", "mend one of them as the lines above say")
