"""A start time within a run: after a number of seconds, or after a number of global steps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_SPAN: Final = re.compile(r"(?:(\d{1,5})h)?(?:(\d{1,5})m)?(?:(\d{1,8}(?:\.\d{1,6})?)s)?")
_UNITS_S: Final = (3600, 60, 1)
_STEPS: Final = re.compile(r"([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,15}) steps?")


@dataclass(frozen=True, slots=True)
class Trigger:
    """A start time within a run; exactly one of the attributes is set.

    Attributes:
        seconds: Seconds since the run was submitted, or None.
        steps: The global step, or None.
    """

    seconds: float | None = None
    steps: int | None = None

    def __str__(self) -> str:
        if self.steps is None:
            return f"{self.seconds:g}s"
        return f"after {self.steps:,} step{'s' * (self.steps != 1)}"

    def has_come(self, elapsed_s: float, global_step: int | None) -> bool:
        """Whether the start time has passed."""
        if self.seconds is not None:
            return elapsed_s >= self.seconds
        return global_step is not None and self.steps is not None and global_step >= self.steps


def parse_duration(text: str) -> float:
    """Parse a duration such as `10s`, `1m30s` or `0.5s`; return seconds.

    Raises:
        ValueError: The text is not a duration; the message has an example.
    """
    found = _SPAN.fullmatch(text)
    if not text or found is None:
        raise ValueError(f"{text!r} is not a duration, such as 10s or 1m30s")
    parts = zip(found.groups("0"), _UNITS_S, strict=True)
    return sum(float(number) * unit for number, unit in parts)


def parse_trigger(text: str) -> Trigger:
    """Parse `10s`, `after 10s` or `after 20,900 steps`.

    Raises:
        ValueError: The text is not a start time; the message has an example.
    """
    moment = " ".join(text.split()).removeprefix("after ")
    if steps := _STEPS.fullmatch(moment):
        return Trigger(steps=int(steps[1].replace(",", "")))
    try:
        return Trigger(seconds=parse_duration(moment))
    except ValueError:
        raise ValueError(
            f"{text!r} is not a start time, such as 10s or `after 500 steps`"
        ) from None
