"""The time of `lab render`, relative to `docker compose config` on the rendered file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks import pairs
from benchmarks.commands import seconds
from benchmarks.configs import (
    NODES,
    PER_NODE,
    Rendering,
    default,
    thousand_tasks,
    written,
)
from benchmarks.measure import Setting, print_progress, with_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.rendering import checked
from tests.engine import NoEngine, compose_plugin

SMALL, LARGE = Target("at most", 4), Target("at most", 0.5)
"""The small case compares the start of Python and pydantic with that of a Go program of 76 MB."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A rendered config.

    Attributes:
        key: Its key in `results.json`.
        label: Its name in the table.
        tasks: The number of tasks.
        target: The target of the ratio.
    """

    key: str
    label: str
    tasks: int
    target: Target


DEFAULT = _Case("compose-default", "the default", 4, SMALL)
THOUSAND = _Case("compose-1000", "1,000 tasks", NODES * PER_NODE, LARGE)
"""`docker compose config` of 10,000 tasks takes more than a minute."""


def measure(setting: Setting) -> list[Outcome]:
    """Measure the default config and 1,000 tasks."""
    place = setting.place
    cases = {DEFAULT: default(place), THOUSAND: written(place, thousand_tasks())}
    try:
        with compose_plugin() as found:
            names = [name for name in ("DOCKER_CONFIG", "PATH", "HOME") if name in found]
            environ = {**place.environ, **{name: found[name] for name in names}}
            return [_measured(case, file, environ, setting) for case, file in cases.items()]
    except NoEngine as reason:
        return [_outcome(case, None, str(reason)) for case in cases]


def unmeasured() -> list[Outcome]:
    """Return the rows without figures, for RESULTS.md before the first measurement."""
    why_not = "run `python -m benchmarks compose-config` on an idle machine"
    return [_outcome(case, None, why_not) for case in (DEFAULT, THOUSAND)]


def _measured(
    case: _Case, rendering: Rendering, environ: Mapping[str, str], setting: Setting
) -> Outcome:
    print_progress(f"lab render and docker compose config, {case.label}: {setting.pairs} pairs")
    checked(rendering, case.tasks, setting)
    config = ["docker", "compose", "--file", str(rendering.output), "config", "--quiet"]
    raw = pairs.interleaved(
        with_progress("render", lambda: seconds(setting.place, rendering.command), _shown),
        with_progress("config", lambda: seconds(setting.place, config, environ), _shown),
        setting.pairs,
    )
    return _outcome(case, raw)


def _outcome(case: _Case, raw: list[tuple[float, float]] | None, why_not: str = "") -> Outcome:
    renders, configs = ([pair[side] for pair in raw or ()] for side in (0, 1))
    details = (
        {}
        if not raw
        else {
            "`lab render`": _shown(pairs.estimate(renders).median),
            "`docker compose config -q`": _shown(pairs.estimate(configs).median),
        }
    )
    return Outcome(
        key=case.key,
        what=f"`lab render` / `docker compose config -q` of the rendered file, {case.label}",
        unit="ratio",
        target=case.target,
        found=pairs.ratio(raw) if raw else None,
        how="Whole processes, interleaved; GPUs pinned by index. `config` only reads, merges and"
        " checks.",
        why_not=why_not,
        details=details,
        raw={"render_s": renders, "config_s": configs},
    )


def _shown(seconds_taken: float) -> str:
    return f"{seconds_taken:.3f} s"
