"""`lab doctor`.

Examples:
    # run all checks; they change nothing
    lab doctor
    # as JSON; exit code 1 if a required check fails
    lab doctor --json
"""

from __future__ import annotations

import os
from pathlib import Path

from lab.backends.checks import Check
from lab.backends.names import CAPABILITIES
from lab.base.console import print_json
from lab.base.errors import LabError
from lab.base.variables import LAB_RUNS_DIR
from lab.checks import host as hosts
from lab.checks.report import GPUS, HOST, Report, gpu_area
from lab.verbs.common_options import AsJson


def doctor(*, json: AsJson = False) -> None:
    """Check this host and suggest fixes.

    Raises:
        LabError: A required check fails, or no backend can be used.
    """
    report = Report([*CAPABILITIES])
    if json:
        _examine(report)
        print_json(report.as_json())
    else:
        # Imported here: the package rich may be missing.
        from lab.checks.view import View  # noqa: PLC0415

        view = View()
        report.show = view.show
        with view.watching() as report.watch:
            _examine(report)
        view.end(report)
    if names := ", ".join(fault.where for fault in report.faults()):
        raise LabError(f"required checks fail: {names}", "fix them as shown above")
    if not report.has_backend:
        raise LabError("no backend can be used on this host", "fix one backend as shown above")


def _examine(report: Report) -> None:
    """Run all checks: of the host, then of its GPUs, then of each backend."""
    installed = Check("packages", lambda: hosts.check_packages(hosts.requirements()))
    if not report.examine(HOST, [installed]):
        return
    # Imported here: their packages may be missing.
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
    has_gpus = report.examine(GPUS, gpus.checks(host.inventory))
    for backend in backends():
        if report.examine(backend.name, backend.checks(host)) and has_gpus:
            report.examine(gpu_area(backend.name), backend.gpu_checks())


command = doctor
