"""How long `lab render` takes, beside `docker compose config` on the file that it has written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks import pairs
from benchmarks.commands import seconds
from benchmarks.descriptions import (
    NODES,
    PER_NODE,
    SHARING,
    Rendering,
    default,
    sharing,
    thousand_tasks,
    written,
)
from benchmarks.measure import Setting, say, told
from benchmarks.outcome import Outcome, Target
from benchmarks.rendering import MANY, checked
from tests.engine import NoEngine, compose_plugin

SMALL, LARGE = Target("at most", 4), Target("at most", 0.5)
"""One starts Python and pydantic, the other a program of 76 MB in Go; behind that it is work."""

FEW_PAIRS = 2
"""For ten thousand tasks, which `docker compose config` reads for more than a minute."""


@dataclass(frozen=True, slots=True)
class _Case:
    """What is rendered and read: its key and words in the table, and how often."""

    key: str
    words: str
    rendering: Rendering
    tasks: int
    target: Target
    pairs: int


def measure(setting: Setting) -> list[Outcome]:
    """The default description, a thousand tasks, ten thousand."""
    place = setting.place
    few = min(FEW_PAIRS, setting.pairs)
    large = written(place, sharing(MANY))
    cases = [
        _Case("compose-default", "the default", default(place), 4, SMALL, setting.pairs),
        _Case(
            "compose-1000",
            "1,000 tasks",
            written(place, thousand_tasks()),
            NODES * PER_NODE,
            LARGE,
            setting.pairs,
        ),
        _Case("compose-10000", "10,000 tasks", large, MANY * SHARING, LARGE, few),
    ]
    if setting.quick:
        cases.pop()
    try:
        with compose_plugin() as found:
            names = [name for name in ("DOCKER_CONFIG", "PATH", "HOME") if name in found]
            environ = {**place.environ, **{name: found[name] for name in names}}
            return [_measured(case, environ, setting) for case in cases]
    except NoEngine as reason:
        return [_outcome(case, None, str(reason)) for case in cases]


def _measured(case: _Case, environ: Mapping[str, str], setting: Setting) -> Outcome:
    say(f"lab render and docker compose config, {case.words}: {case.pairs} pairs")
    checked(case.rendering, case.tasks, setting)
    config = ["docker", "compose", "--file", str(case.rendering.output), "config", "--quiet"]
    raw = pairs.interleaved(
        told("render", lambda: seconds(setting.place, case.rendering.command), _shown),
        told("config", lambda: seconds(setting.place, config, environ), _shown),
        case.pairs,
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
        what=f"`lab render` / `docker compose config -q` of what it wrote, {case.words}",
        unit="ratio",
        target=case.target,
        found=pairs.ratio(raw) if raw else None,
        how="Whole processes, in turn; pinned by index. `config` only reads, merges and checks.",
        why_not=why_not,
        details=details,
        raw={"render_s": renders, "config_s": configs},
    )


def _shown(seconds_taken: float) -> str:
    return f"{seconds_taken:.3f} s"
