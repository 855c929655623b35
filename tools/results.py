"""Reproduce the sources' trainings, and write `docs/results.md` and README's counts.

`python tools/results.py [NAME…]` trains, draws the plots and writes; 20 minutes on two cores.
With `--write` it only writes the texts, from `docs/results/*.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lab.formatting import band, compared, mean_of_runs
from lab.reproduce.claims import GROUPS, NAMES, SOURCES, Group

ROOT: Final = Path(__file__).resolve().parents[1]
README: Final = ROOT / "README.md"
PAGE: Final = ROOT / "docs/results.md"
KEPT: Final = ROOT / "docs/results"
SAMPLES: Final = ROOT / "notebooks/samples"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"

COUNTED: Final[tuple[Group, ...]] = ("independent", "fitted", "own")
FIGURES: Final[Mapping[str, Sequence[tuple[str, str, str]]]] = {
    "book-async": (
        (
            "late-worker.png",
            "Global step, and each worker's own steps, over time",
            "Made with `lab report RUN` from the first of these trainings. Worker 2 starts at the"
            " marker ①, after 20,900 steps. This start is our hypothesis, fitted to the book's"
            " table.",
        ),
        (
            "staleness.png",
            "Histograms of staleness",
            "Made with `lab report RUN` from the notebooks' sample `chapter`, the same training by"
            " `async`. Staleness is the number of updates by other workers between a worker's read"
            " of the parameters and its own update. The dashed line is the worker's mean over all"
            " steps.",
        ),
    ),
    "book-sync": (
        (
            "loss.png",
            "Loss by updates, by time, and by images",
            "Made with `lab report RUN RUN` from the first asynchronous and the first synchronous"
            " training of the book.",
        ),
    ),
}
"""Name to its figures: file, alternative text and caption."""

EXIT_CODES: Final = (0, 1, 3)
"""Exit codes with which `lab reproduce` prints verdicts."""

Result = Mapping[str, Any]
"""What `lab reproduce --json` prints, and the host's load average before the first training."""


def main(argv: Sequence[str]) -> int:
    """Train and draw, unless `--write` is given; then write the texts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the texts without training")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)} (default: all)"
    )
    options = parser.parse_args(argv)
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; use {', '.join(NAMES)}")
    if not options.write:
        train_and_draw(ROOT / "runs/results", options.names or NAMES)
    results = kept()
    README.write_text(put(README.read_text(), section(results)))
    PAGE.write_text(page(results))
    return 0


def kept() -> dict[str, Result]:
    """Return name to its result in `docs/results/`; a name without a result is missing."""
    paths = {name: KEPT / f"{name}.json" for name in NAMES}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.is_file()}


def train_and_draw(runs: Path, names: Sequence[str]) -> None:
    """Make all runs, and write their results and figures into `docs/results/`."""
    shutil.rmtree(runs, ignore_errors=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    first: dict[str, str] = {}
    load = round(os.getloadavg()[0], 1)  # later the trainings themselves are the load
    for name in names:
        result = json.loads(lab(runs, *reproduce(name), "--json", codes=EXIT_CODES))
        text = json.dumps({"load_average": load, **result}, indent=2)
        (KEPT / f"{name}.json").write_text(text + "\n")
        if name in FIGURES and result["runs"]:
            first[name] = result["runs"][0]
    if "book-async" in first:
        lab(runs, "report", first["book-async"])
        keep(runs / first["book-async"] / "figures/progress.png", "late-worker.png")
        chapter = json.loads((SAMPLES / "index.json").read_text())["chapter"]["run"]
        lab(runs, "report", str(SAMPLES / chapter), "--output", str(runs / "chapter.html"))
        keep(runs / "chapter-figures/staleness.png", "staleness.png")
    if len(first) == len(FIGURES):
        lab(runs, "report", first["book-async"], first["book-sync"])
        keep(runs / "figures/loss.png", "loss.png")


def reproduce(name: str) -> tuple[str, ...]:
    """Return the arguments of the `lab` command that is run and that the page shows."""
    return ("reproduce", name, "--quick", "--backend", "local")


def lab(runs: Path, *args: str, codes: Sequence[int] = (0,)) -> str:
    """Run a `lab` command, and return its standard output."""
    command = [sys.executable, "-m", "lab", *args, "--runs-dir", str(runs)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            printed, _ = process.communicate()
        except KeyboardInterrupt:  # the command also receives Ctrl-C, and cleans up
            process.wait()
            sys.exit(130)
    if process.returncode not in codes:
        sys.exit(f"error: lab {' '.join(args)}: exit code {process.returncode}")
    return printed


def keep(figure: Path, name: str) -> None:
    """Copy a figure into the directory from which the page shows it."""
    shutil.copyfile(figure, KEPT / name)


def put(text: str, new: str) -> str:
    """Return README's text with a new section between its marks."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"error: {README} lacks the marks of the results; restore them")
    return f"{head}{BEGIN}{new}{END}{tail}"


def section(results: Mapping[str, Result]) -> str:
    """Return README's three counts in Markdown; a pure function of the results."""
    rows = [
        f"| {GROUPS[group]} | {counted(verdicts_of(results.values(), group))} |"
        for group in COUNTED
    ]
    missing = without_verdicts(results)
    return "\n".join(["", "| | verdicts |", "| --- | --- |", *rows, "", *missing, ""])


def without_verdicts(results: Mapping[str, Result]) -> list[str]:
    """Return a line for each source whose claims have no verdicts under the present rules."""
    missing = (name for name in NAMES if name not in results)
    return [f"`lab reproduce {name}` has no verdicts yet.\n" for name in missing]


def page(results: Mapping[str, Result]) -> str:
    """Return the text of `docs/results.md`; a pure function of the results."""
    lines = [
        "# Results",
        "",
        "The verdicts of `lab reproduce` on each claim of the sources. `make results` makes all"
        " trainings and writes this page. All runs are processes on two shared cores, without a"
        " GPU. [reproduce.md](reproduce.md) explains the groups, the verdicts and the bands.",
        "",
        "| | " + " | ".join(GROUPS[group] for group in COUNTED) + " |",
        "| --- |" + " --- |" * len(COUNTED),
        *(counts_row(name, [result]) for name, result in results.items()),
        counts_row("all", list(results.values())),
        "",
        *without_verdicts(results),
    ]
    for name, result in results.items():
        lines += chapter(name, result)
    return "\n".join(lines)


def counts_row(name: str, results: Sequence[Result]) -> str:
    """Return a row of the table of counts."""
    cells = (counted(verdicts_of(results, group)) for group in COUNTED)
    return f"| {name} | {' | '.join(cells)} |"


def verdicts_of(results: Iterable[Result], group: Group) -> list[Result]:
    """Return all verdicts of a group."""
    return [each for result in results for each in result["verdicts"] if each["group"] == group]


def counted(verdicts: Sequence[Result]) -> str:
    """Return the number of each verdict: `47 PASS, 1 OUTSIDE_BAND`."""
    found = Counter(each["verdict"] for each in verdicts)
    return ", ".join(f"{count} {verdict}" for verdict, count in found.items()) or "none"


def chapter(name: str, result: Result) -> list[str]:
    """Return the section of the page about one name: its command, tables and figures."""
    source = result["source"]
    lines = [
        f"## {name}: {source}",
        "",
        "```sh",
        f"lab {' '.join(reproduce(name))}",
        "```",
        "",
        f"{len(result['runs'])} runs, made {result['made'].partition('T')[0]}. The load average"
        f" before the first training was {result['load_average']:g}.",
        "",
    ]
    for group, title in GROUPS.items():
        verdicts = verdicts_of([result], group)
        if verdicts:
            lines += [f"### {title.capitalize()}: {counted(verdicts)}", "", *table(verdicts), ""]
    for file, text, caption in FIGURES.get(name, ()):
        lines += [f"![{text}](results/{file})", "", caption, ""]
    return lines


def table(verdicts: Sequence[Result]) -> list[str]:
    """Return a table with a row for each claim; notes on several claims are above it."""
    notes = dict.fromkeys(each["note"] for each in verdicts if each["note"])
    rows = [
        f"| {each['words']} | {SOURCES[each['source']]}: {each['where']} | {printed(each)} |"
        f" {ours(each)} | {within(each)} | {each['verdict']}{why(each)} |"
        for each in verdicts
    ]
    shared = [
        f"- {note[0].upper()}{note[1:]} ({', '.join(names(verdicts, note))})." for note in notes
    ]
    heads = [
        "| claim | stated in | source | ours, 95% | band of ours | verdict |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    return [*shared, *([""] if shared else []), *heads, *rows]


def names(verdicts: Sequence[Result], note: str) -> list[str]:
    """Return the names of the claims with a note, each once: `global step`."""
    noted = [each["words"].partition(": w")[0] for each in verdicts if each["note"] == note]
    return list(dict.fromkeys(noted))


def printed(verdict: Result) -> str:
    """Return the value that the source prints."""
    return "" if verdict["source_value"] is None else compared(verdict["source_value"])


def ours(verdict: Result) -> str:
    """Return our mean with half of its interval."""
    found = verdict["ours"]
    if found["mean"] is None:
        return ""
    return mean_of_runs(found["mean"], found["low"], found["high"], found["n"])


def within(verdict: Result) -> str:
    """Return the band that must contain our mean."""
    return "" if verdict["band"] is None else band(verdict["band"]["low"], verdict["band"]["high"])


def why(verdict: Result) -> str:
    """Return the reason for a verdict; empty if the row's numbers already show it."""
    is_clear = verdict["band"] is not None and verdict["verdict"] == "PASS"
    return "" if is_clear or not verdict["why"] else f": {verdict['why']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
