"""The steps of a training: which ones are recorded, and their mean times."""

from __future__ import annotations

import math
import time
from typing import Final, Literal

RECORD_WITHIN_S: Final = 5.0
"""With slow steps, a step is recorded at least this often, in seconds."""


class Steps:
    """Counts the steps of one task, and times them since the last record."""

    def __init__(
        self,
        every: int = 1,
        examples_per_step: int = 0,
        local_steps_per_epoch: int = 0,
        global_steps_per_epoch: int = 0,
        *,
        global_step: int = 0,
        last_step: int = 0,
        test_every: int = 0,
    ) -> None:
        """Start the first interval; see `Recorder.begin_training` for the arguments."""
        self._every = every
        self._examples_per_step = examples_per_step
        self._local_steps_per_epoch = local_steps_per_epoch
        self._global_steps_per_epoch = global_steps_per_epoch
        self._last_step = last_step
        self._test_every = test_every
        self._next_test = test_every or math.inf
        self._local_step = self._recorded_step = 0
        self._global_step = global_step
        self._recorded_s = self._stepped_s = time.monotonic()
        self._waited_s: float | None = None
        self._staleness: int | None = None
        self._staleness_sum = 0

    def add(self, local_step: int, global_step: int) -> Literal["step", "epoch"] | None:
        """Count all steps up to this one; return the kind of its record, or None if none is due."""
        earlier, epochs = self._local_step, self._epochs()
        self._local_step, self._global_step = local_step, global_step
        self._stepped_s = time.monotonic()
        if self._epochs() > epochs:
            return "epoch"
        is_due = (
            local_step in {1, self._last_step}
            or local_step // self._every > earlier // self._every
            or self._stepped_s - self._recorded_s > RECORD_WITHIN_S
        )
        return "step" if is_due else None

    def add_staleness(self, staleness: int, total: int | None) -> None:
        """Store the staleness of the last step, and the sum for all steps if it is given."""
        self._staleness = staleness
        self._staleness_sum = self._staleness_sum + staleness if total is None else int(total)

    def add_wait(self, wait_s: float) -> None:
        """Add the time for which the last steps waited for other tasks."""
        self._waited_s = (self._waited_s or 0.0) + wait_s

    @property
    def test_is_due(self) -> bool:
        """Whether the last step has reached the global step of the next test."""
        return self._global_step >= self._next_test

    def add_test(self, global_step: int) -> None:
        """Count a test of these parameters; exclude its time from the next step time."""
        if self._test_every:
            self._next_test = (global_step // self._test_every + 1) * self._test_every
        now = time.monotonic()
        self._recorded_s += now - self._stepped_s
        self._stepped_s = now

    def record(self) -> dict[str, int | float]:
        """Return the fields of the last step's record, and start the next interval."""
        steps = self._local_step - self._recorded_step
        fields = self.totals() | {"step_time_s": (self._stepped_s - self._recorded_s) / steps}
        if self._staleness is not None:
            fields["staleness"] = self._staleness
        if self._waited_s is not None:
            fields["wait_time_s"] = self._waited_s / steps
            self._waited_s = 0.0
        self._recorded_step, self._recorded_s = self._local_step, self._stepped_s
        return fields

    def totals(self) -> dict[str, int | float]:
        """Return the fields that count all steps so far."""
        fields: dict[str, int | float] = {
            "local_step": self._local_step,
            "global_step": self._global_step,
            "examples": self._local_step * self._examples_per_step,
        }
        if self._local_steps_per_epoch or self._global_steps_per_epoch:
            fields["epoch"] = self._epochs(before=1)
        if self._staleness is not None:
            fields["staleness_sum"] = self._staleness_sum
        return fields

    def _epochs(self, before: int = 0) -> int:
        """Return the number of complete epochs, or that before the last step."""
        local, whole = self._local_steps_per_epoch, self._global_steps_per_epoch
        if local:
            return max(self._local_step - before, 0) // local
        return max(self._global_step - before, 0) // whole if whole else 0
