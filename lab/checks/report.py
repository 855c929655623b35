"""Runs the checks of one area after the other, and says what can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lab.backends.checks import Check, Outcome, Status

HOST: Final = "host"
"""The area of what every backend needs."""

GPUS: Final = "GPUs"


def gpu_area(backend: str) -> str:
    """Return the area of the GPUs of a backend's tasks."""
    return f"GPUs by {backend}"


@dataclass(slots=True)
class Report:
    """The outcomes of all checks so far.

    Attributes:
        show: Receives each outcome as soon as it is known.
        watch: Receives the name of each check before it runs; some checks take seconds.
        backends: The names of the backends.
        wants_gpus: Whether the config of this directory asks for GPUs.
        outcomes: The outcomes.
    """

    show: Callable[[Outcome], None] = lambda _: None
    watch: Callable[[str], None] = lambda _: None
    backends: Sequence[str] = ()
    wants_gpus: bool = False
    outcomes: list[Outcome] = field(default_factory=list)

    def examine(self, area: str, checks: Iterable[Check]) -> bool:
        """Run the checks of an area, and return whether the area can be used."""
        for check in checks:
            self.watch(f"{area}: {check.name}")
            outcome = replace(check.run(), area=area)
            self.outcomes.append(outcome)
            self.show(outcome)
            if outcome.stops:
                break
        return not self.obstacle(area)

    def obstacle(self, area: str) -> str:
        """Return the check because of which an area cannot be used; "" if it can be used."""
        return next((each.where for each in self._of(area) if each.blocks), "")

    def _of(self, area: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.area == area]

    def obstacles(self) -> dict[str, str]:
        """Return the obstacle of each backend that this host could have, and of GPUs."""
        host = self.obstacle(HOST)
        backends = {
            name: host or self.obstacle(name)
            for name in self.backends
            if any(outcome.status is not Status.SKIPPED for outcome in self._of(name))
        }
        return {**backends, GPUS: host or self.obstacle(GPUS) or self._gpu_obstacle(backends)}

    def _gpu_obstacle(self, backends: dict[str, str]) -> str:
        """Return why no backend that can be used gives GPUs to its tasks; "" if one does."""
        areas = [gpu_area(name) for name, obstacle in backends.items() if not obstacle]
        obstacles = [self.obstacle(area) for area in areas if self._of(area)]
        return "" if "" in obstacles else next(iter(obstacles), "no backend")

    def faults(self) -> Iterator[Outcome]:
        """Yield the faults that must be fixed whatever the backend is."""
        areas = [HOST]
        if self.wants_gpus and not self.obstacle(HOST):
            areas.append(GPUS)
            if not self.obstacle(GPUS) and self.obstacles()[GPUS]:
                areas += map(gpu_area, self.backends)
        for area in areas:
            yield from (each for each in self._of(area) if each.status is Status.FAILED)

    @property
    def has_backend(self) -> bool:
        """Whether at least one backend can be used."""
        return any(not why for area, why in self.obstacles().items() if area != GPUS)

    @property
    def ok(self) -> bool:
        """Whether this host can train what the config of this directory needs."""
        return self.has_backend and not any(self.faults())

    def sentence(self) -> str:
        """Return the summary: `compose: no (engine); local: yes; GPUs: no (driver)`."""
        found = self.obstacles().items()
        return "; ".join(f"{area}: {f'no ({why})' if why else 'yes'}" for area, why in found)

    def as_json(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        return {
            "findings": [outcome.as_json() for outcome in self.outcomes],
            "usable": {area.lower(): not why for area, why in self.obstacles().items()},
            "ok": self.ok,
        }
