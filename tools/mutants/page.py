"""Results of mutation testing as data, and the page that is written from them."""

from __future__ import annotations

import datetime
import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from tools.mutants.run import ROOT, SAMPLE, Mutant, Outcome

RESULTS: Final = ROOT / "docs/evidence/mutants.json"
PAGE: Final = ROOT / "docs/evidence/mutants.md"
EXPLANATIONS: Final = Path(__file__).with_name("explanations.toml")
LEAST_SCORE: Final = 0.9

_INTRODUCTION: Final = f"""\
# Faults on purpose, and whether the tests find them

`make mutants` changes one expression at a time and runs the unit tests of that module. Each change
is a mutant. A test that fails *kills* the mutant. A mutant that survives is a gap in the tests, or
it makes no difference. Every survivor is explained below.

A module with more than {SAMPLE} mutants is tested by a random sample of {SAMPLE}. The table shows
the seed of the sample. The score is the share of killed mutants. A mutant whose tests ran out of
time does not count as killed. The required score is {LEAST_SCORE:.0%} for each module.

The tool is [mutmut](https://github.com/boxed/mutmut). It changes function bodies. It does not
change module constants, class attributes, default values that are calls, or decorated functions
such as properties. Property tests are left out, because they draw other inputs in each run.
`tools/mutants/modules.toml` names the files and tests of each module.
"""
_COLUMNS: Final = (
    "module", "mutants", "tested", "killed", "survived", "timeout", "score", "seed", "commit",
    "date",
)  # fmt: skip


def record(module: str, outcome: Outcome, commit: str, date: datetime.date) -> None:
    """Put a module's outcome into the results file; the other modules' results stay."""
    results = kept_results()
    results[module] = {
        **asdict(outcome),
        "commit": commit,
        "date": date.isoformat(),
    }
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def merged(kept: Mapping[str, Any], again: Outcome) -> Outcome:
    """A kept result whose survivors were tested again."""
    status = {**kept["status"], **again.status}
    return replace(again, status=status, seed=kept["seed"])


def write() -> list[str]:
    """Write the page.

    Returns:
        What is not good enough: a low score, a survivor without explanation.
    """
    results, reasons = kept_results(), explanations()
    PAGE.write_text(text(results, reasons), encoding="utf-8")
    return faults(results, reasons)


def text(results: Mapping[str, Any], reasons: Mapping[Mutant, str]) -> str:
    """The page."""
    lines = [
        f"| {' | '.join(_COLUMNS)} |",
        f"|{' --- |' * len(_COLUMNS)}",
        *(_row(name, result) for name, result in results.items()),
    ]
    parts = [_INTRODUCTION, "\n".join(lines) + "\n", "## Survivors\n"]
    for name, result in results.items():
        parts.append(f"### {name}\n")
        parts += [_survivor(mutant, reasons.get(mutant)) for mutant in _survivors(result)]
    return "\n".join(parts)


def faults(results: Mapping[str, Any], reasons: Mapping[Mutant, str]) -> list[str]:
    """One message for each low score and for each survivor without an explanation."""
    found = []
    for name, result in results.items():
        if score(result) < LEAST_SCORE:
            found.append(f"{name}: score {score(result):.1%} is below {LEAST_SCORE:.0%}")
        for mutant in _survivors(result):
            if mutant not in reasons:
                fields = (
                    f"{key} = {json.dumps(getattr(mutant, key), ensure_ascii=False)}\n"
                    for key in ("function", "was", "now")
                )
                found.append(
                    f"{name}: a survivor has no explanation; write a test, or add to {EXPLANATIONS}"
                    f"\n[[mutant]]\n{''.join(fields)}why = \n"
                )
    return found


def score(result: Mapping[str, Any]) -> float:
    """The share of killed mutants among the tested ones."""
    return Counter(result["status"].values())["killed"] / len(result["status"])


def kept_results() -> dict[str, Any]:
    """Module name → its newest result."""
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    return found


def explanations() -> dict[Mutant, str]:
    """Mutant → why it may survive, as a person wrote it down."""
    listed = tomllib.loads(EXPLANATIONS.read_text(encoding="utf-8")).get("mutant", [])
    return {Mutant(each["function"], each["was"], each["now"]): each["why"] for each in listed}


def _survivors(result: Mapping[str, Any]) -> list[Mutant]:
    return sorted(Mutant(**each) for each in result["survivors"].values())


def _row(name: str, result: Mapping[str, Any]) -> str:
    counts, tested = Counter(result["status"].values()), len(result["status"])
    killed, late = counts["killed"], counts["timeout"]
    cells = (
        f"`{name}`", result["mutants"], tested, killed, tested - killed - late, late,
        f"{score(result):.1%}", result["seed"], f"`{result['commit']}`", result["date"],
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def _survivor(mutant: Mutant, reason: str | None) -> str:
    changed = "\n".join(["```diff", f"- {mutant.was}", f"+ {mutant.now}", "```"])
    return f"`{mutant.function}`: {reason or 'NOT EXPLAINED'}\n\n{changed}\n"
