"""`lab import FILE…`.

An imported run is data: `lab show`, `compare`, `report` and others read it. No command resumes,
follows, cancels or collects it, and `last` never means it.

Examples:
    # the run of another machine
    lab import 20260101-0000-async-aaaa.lab.tar.gz
    # into another run store
    lab import 20260101-0000-async-aaaa.lab.tar.gz --runs-dir class
"""

# ruff: noqa: N999  (the command's name is a keyword of Python)

from __future__ import annotations

from lab.api.archives import import_
from lab.cli.printing import prints

command = prints(import_)
