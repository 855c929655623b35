"""The page about all runs, from their rows; a pure function."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tests.torture.case import CLEAN_END, WORDS, Fault, Policy
from tests.torture.judging import Verdict
from tests.torture.results import CLEAN_END as CAMPAIGN_OF_ENDS
from tests.torture.results import FAULTS, HOSTILE, Row, newest

_TOLD: Final = {
    Verdict.HANG: "hangs",
    Verdict.LIE: "lies",
    Verdict.LOST_RECORDS: "with lost records",
    Verdict.SUMS: "with wrong sums",
    Verdict.ORPHAN: "with something left behind",
    Verdict.LATE: "too late",
}

_HEAD: Final = """\
# Torture

`make torture` adds to this page. Each run draws from its seed a cluster of 2 to 8 workers and 1 to
3 parameter servers, an experiment, a backend, and one fault, which comes from outside the lab: by
signals, by the engine, by the kernel. After each run is looked at: that it ended, in time; that
state, exit code and cause are true; that each update was counted once; that no record is missing
and none came twice; that no process, container, network, volume, directory or mount is left.
`python -m tests.torture --seed N` repeats a run. The rows are in `torture.jsonl`.
"""


def render(rows: Sequence[Row]) -> str:
    """The page.

    Args:
        rows: All rows, oldest first; of a case that ran again the last one counts.
    """
    last = newest(rows)
    faults = [row for row in last if row.campaign == FAULTS]
    ends = [row for row in last if row.campaign == CAMPAIGN_OF_ENDS]
    hostile = [row for row in last if row.campaign == HOSTILE]
    parts = [_HEAD, "## Faults\n", totals(faults) + "\n", _table_of_faults(faults)]
    if ends:
        parts += ["## The end of synchronous trainings\n", totals(ends) + "\n"]
        parts += [_table_of_ends(ends)]
    if hostile:
        parts += ["## Hostile programs under faults\n", totals(hostile) + "\n"]
        parts += [_table_of_harms(hostile)]
    parts += ["## Findings\n", _findings(rows, last)]
    return "\n".join(parts)


def totals(rows: Sequence[Row]) -> str:
    """How many runs there are, and how many of them were bad in which way, in one line."""
    found = [f"{_count(rows, verdict)} {words}" for verdict, words in _TOLD.items()]
    backends = ", ".join(
        f"{sum(row.backend == backend for row in rows)} on {backend}"
        for backend in sorted({row.backend for row in rows})
    )
    where = f" ({backends})" if backends else ""
    missed = _count(rows, Verdict.MISSED)
    late = f" In {missed} the fault came after the end, which counts for nothing." if missed else ""
    return f"{len(rows)} runs{where}: {', '.join(found)}.{late}"


def _table_of_faults(rows: Sequence[Row]) -> str:
    lines = [
        "| fault | policy | outcome | runs | fault to end, median | longest | seeds |",
        "| --- | --- | --- | ---: | ---: | ---: | --- |",
    ]
    for fault in Fault:
        for policy in Policy:
            of_both = [row for row in rows if (row.fault, row.policy) == (fault, policy)]
            for outcome, same in _grouped(of_both, _outcome):
                lines.append(
                    f"| {WORDS[fault]} | {policy} | {outcome} | {len(same)} |"
                    f" {_seconds(same, statistics.median)} | {_seconds(same, max)} |"
                    f" {_ranges(row.seed for row in same)} |"
                )
    return "\n".join(lines) + "\n"


def _outcome(row: Row) -> str:
    if row.verdict == Verdict.MISSED:
        return "missed: the fault came after the end"
    return f"**{row.verdict}**: {row.outcome}" if row.bad else row.outcome


def _table_of_ends(rows: Sequence[Row]) -> str:
    lines = [
        "| workers | gradients in one update | ended well | of |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for workers, replicas, _ in CLEAN_END:
        same = [row for row in rows if (row.workers, row.replicas) == (workers, replicas)]
        if same:
            well = _count(same, Verdict.OK)
            lines.append(f"| {workers} | {replicas or workers} | {well} | {len(same)} |")
    return "\n".join(lines) + "\n"


def _table_of_harms(rows: Sequence[Row]) -> str:
    lines = [
        "| harm | fault | backend | outcome | seed |",
        "| --- | --- | --- | --- | ---: |",
    ]
    lines += [
        f"| {row.harm} | {WORDS[Fault(row.fault)]} | {row.backend} | {_outcome(row)} | {row.seed} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _findings(rows: Sequence[Row], last: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        if not row.bad:
            continue
        key = (row.campaign, row.backend, row.seed)
        now = next(each for each in last if (each.campaign, each.backend, each.seed) == key)
        since = "" if now.bad else f" At {now.commit} it is mended."
        where = f"{row.experiment} on {row.backend}, {row.workers} workers, {row.ps} ps"
        what = " ".join(filter(None, (row.fault, row.target, row.when)))
        output = "; ".join(row.details)
        lines.append(
            f"- Seed {row.seed} ({row.campaign}, {row.commit}, {row.date}): **{row.verdict}**,"
            f" {where}, {row.policy}, {what}: {row.outcome}, exit code {row.exit_code}:"
            f" {output}.{since}"
        )
    return "\n".join(lines or ["None."]) + "\n"


def _count(rows: Iterable[Row], verdict: Verdict) -> int:
    return sum(row.verdict == verdict for row in rows)


def _grouped(rows: Sequence[Row], key: Callable[[Row], str]) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _seconds(rows: Sequence[Row], of: Callable[[list[float]], float]) -> str:
    found = [row.seconds for row in rows if row.seconds is not None]
    return f"{of(found):.1f} s" if found else ""


def _ranges(seeds: Iterable[int]) -> str:
    """`3, 7, 12-15`."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else _all(run) for run in runs)


def _all(run: Sequence[int]) -> str:
    return ", ".join(map(str, run))
