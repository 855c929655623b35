"""The errors that commands print for the user.

Each error has one line, what is wrong and how to fix it, and the exit code of the command. Any
other exception is a defect of lab.
"""

from __future__ import annotations

from lab.text import bounded


class LabError(Exception):
    """An error that the user can fix.

    Attributes:
        what: What is wrong, and where, without a full stop at the end. Long texts are cut.
        fix: How to fix it, as an instruction; or "".
        exit_code: The exit code of the command: 1.
    """

    exit_code = 1

    def __init__(self, what: str, fix: str = "") -> None:
        what, fix = bounded(what), bounded(fix)
        super().__init__(f"{what}; {fix}" if fix else what)
        self.what = what
        self.fix = fix


class InputError(LabError):
    """Wrong usage or input: exit code 2."""

    exit_code = 2


class ConfigError(InputError):
    """An invalid config; the error lists all of its faults.

    Attributes:
        problems: One line for each fault: `cluster.yaml:12:5: nodes.tf2.gpus: …`.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("")
        self.problems = [bounded(problem) for problem in problems]
        self.what = "\n".join(self.problems)
        self.args = (self.what,)


class InterruptError(LabError):
    """The user interrupted the command: exit code 130."""

    exit_code = 130


class InconclusiveError(LabError):
    """A result is inconclusive: exit code 3."""

    exit_code = 3
