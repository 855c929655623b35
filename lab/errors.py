"""The one family of errors that the commands show to a user.

An error has one line, what is wrong and how to fix it, and the exit code of the command that it
ends. Any other exception is a defect and keeps its traceback.
"""

from __future__ import annotations

from lab.task.text import bounded


class LabError(Exception):
    """Something failed for a reason that the user can act upon.

    Attributes:
        what: What is wrong, and where; without a final full stop. Long names in it are cut.
        fix: How to fix it, as an imperative phrase; may be empty.
        exit_code: The exit code of the command: 1, it failed.
    """

    exit_code = 1

    def __init__(self, what: str, fix: str = "") -> None:
        what, fix = ("\n".join(map(bounded, text.split("\n"))) for text in (what, fix))
        super().__init__(f"{what}; {fix}" if fix else what)
        self.what = what
        self.mend = fix


class InputError(LabError):
    """Wrong usage or input: exit code 2."""

    exit_code = 2


class ConfigError(InputError):
    """A cluster config is invalid; all faults are reported at once.

    Attributes:
        problems: One line each, `cluster.yaml:12:5: nodes.tf2.gpus: …`.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class InterruptError(LabError):
    """The user interrupted the command: exit code 130."""

    exit_code = 130


class InconclusiveError(LabError):
    """A result is inconclusive so far: exit code 3."""

    exit_code = 3
