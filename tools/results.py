"""Train what the sources describe, and write `docs/results.md` and README's counts.

`python tools/results.py [NAME…]` trains, draws and writes; twenty minutes on two cores.
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
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"

COUNTED: Final[tuple[Group, ...]] = ("independent", "fitted", "own")
FIGURES: Final[Mapping[str, Sequence[tuple[str, str, str]]]] = {
    "book-async": (
        (
            "late-worker.png",
            "Global step, and each worker's own steps, over time",
            "Made with `lab report RUN`, of the first of these trainings. At the mark ① worker 2"
            " starts, after 20,900 steps: our hypothesis, fitted to the book's table.",
        ),
        (
            "staleness.png",
            "Histograms of staleness",
            "The same page: how many updates of the others lie between a worker's read of the"
            " parameters and its own update. The dashed line is a worker's mean.",
        ),
    ),
    "book-sync": (
        (
            "loss.png",
            "Loss by updates, by time, and by images",
            "Made with `lab report RUN RUN`, of the first asynchronous and the first synchronous"
            " training of the book.",
        ),
    ),
}
"""Name to its figures: file, text in place of it, and caption."""

JUDGED: Final = (0, 1, 3)
"""Exit codes of `lab reproduce` that come with verdicts, whatever these are."""

Result = Mapping[str, Any]
"""What `lab reproduce --json` prints, with the machine's load average before it."""


def main(argv: Sequence[str]) -> int:
    """Train and draw, unless only the texts are wanted; then write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="only write the texts")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    asked = parser.parse_args(argv)
    if unknown := set(asked.names) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; names are {', '.join(NAMES)}")
    if not asked.write:
        train_and_draw(ROOT / "runs/results", asked.names or NAMES)
    results = kept()
    README.write_text(put(README.read_text(), section(results)))
    PAGE.write_text(page(results))
    return 0


def kept() -> dict[str, Result]:
    """Name to what is kept of it in `docs/results/`; a training that was never judged has none."""
    paths = {name: KEPT / f"{name}.json" for name in NAMES}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.is_file()}


def train_and_draw(home: Path, names: Sequence[str]) -> None:
    """Make all runs, and from them what is kept in `docs/results/`."""
    shutil.rmtree(home, ignore_errors=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    whole: dict[str, str] = {}
    load = round(os.getloadavg()[0], 1)  # once: what comes later is the trainings' own
    for name in names:
        result = json.loads(lab(home, *reproduce(name), "--json", codes=JUDGED))
        text = json.dumps({"load_average": load, **result}, indent=2)
        (KEPT / f"{name}.json").write_text(text + "\n")
        if name in FIGURES and result["runs"]:
            whole[name] = result["runs"][0]
    if "book-async" in whole:
        lab(home, "report", whole["book-async"])
        keep(home / whole["book-async"] / "figures/progress.png", "late-worker.png")
        keep(home / whole["book-async"] / "figures/staleness.png", "staleness.png")
    if len(whole) == len(FIGURES):
        lab(home, "report", whole["book-async"], whole["book-sync"])
        keep(home / "figures/loss.png", "loss.png")


def reproduce(name: str) -> tuple[str, ...]:
    """The words of the command that a reader is shown, and that is run."""
    return ("reproduce", name, "--quick", "--backend", "local")


def lab(home: Path, *words: str, codes: Sequence[int] = (0,)) -> str:
    """Run a command of the lab; what it prints on its standard output."""
    command = [sys.executable, "-m", "lab", *words, "--runs-dir", str(home)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            printed, _ = process.communicate()
        except KeyboardInterrupt:  # the command got it too, and removes what it has started
            process.wait()
            sys.exit(130)
    if process.returncode not in codes:
        sys.exit(f"{' '.join(words)}: exit code {process.returncode}")
    return printed


def keep(figure: Path, name: str) -> None:
    """Copy a figure to where the page shows it from."""
    shutil.copyfile(figure, KEPT / name)


def put(text: str, new: str) -> str:
    """The README with another section between its marks."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{README} lacks the marks of its results")
    return f"{head}{BEGIN}{new}{END}{tail}"


def section(results: Mapping[str, Result]) -> str:
    """README's three counts in Markdown; a pure function of what was judged."""
    rows = [
        f"| {GROUPS[group]} | {counted(verdicts_of(results.values(), group))} |"
        for group in COUNTED
    ]
    waiting = not_judged(results)
    return "\n".join(["", "| | verdicts |", "| --- | --- |", *rows, "", *waiting, ""])


def not_judged(results: Mapping[str, Result]) -> list[str]:
    """A line for each source whose claims have no verdict under the present rules."""
    missing = (name for name in NAMES if name not in results)
    return [f"`lab reproduce {name}` has not been judged yet.\n" for name in missing]


def page(results: Mapping[str, Result]) -> str:
    """`docs/results.md`; a pure function of what was judged."""
    lines = [
        "# Results",
        "",
        "What `lab reproduce` finds of the sources, claim by claim. `make results` trains it all"
        " and writes this page. All runs are processes on two shared cores, without a GPU."
        " [reproduce.md](reproduce.md) explains the groups, the verdicts and the bands.",
        "",
        "| | " + " | ".join(GROUPS[group] for group in COUNTED) + " |",
        "| --- |" + " --- |" * len(COUNTED),
        *(counts_row(name, [result]) for name, result in results.items()),
        counts_row("all", list(results.values())),
        "",
        *not_judged(results),
    ]
    for name, result in results.items():
        lines += chapter(name, result)
    return "\n".join(lines)


def counts_row(name: str, results: Sequence[Result]) -> str:
    """A row of the table of counts."""
    cells = (counted(verdicts_of(results, group)) for group in COUNTED)
    return f"| {name} | {' | '.join(cells)} |"


def verdicts_of(results: Iterable[Result], group: Group) -> list[Result]:
    """All verdicts of a group."""
    return [each for result in results for each in result["verdicts"] if each["group"] == group]


def counted(verdicts: Sequence[Result]) -> str:
    """`47 PASS, 1 OUTSIDE_BAND`."""
    found = Counter(each["verdict"] for each in verdicts)
    return ", ".join(f"{count} {word}" for word, count in found.items()) or "none"


def chapter(name: str, result: Result) -> list[str]:
    """The part of the page about one training: its command, its tables and its figures."""
    source = result["source"]
    lines = [
        f"## {name}: {source}",
        "",
        "```sh",
        f"lab {' '.join(reproduce(name))}",
        "```",
        "",
        f"{len(result['runs'])} runs, made {result['made'].partition('T')[0]}. The load average of"
        f" the machine was {result['load_average']:g} before the first training.",
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
    """A row for each claim; what limits several of them stands above the table."""
    notes = dict.fromkeys(each["note"] for each in verdicts if each["note"])
    rows = [
        f"| {each['words']} | {SOURCES[each['source']]}: {each['where']} | {printed(each)} |"
        f" {ours(each)} | {within(each)} | {each['verdict']}{why(each)} |"
        for each in verdicts
    ]
    told = [
        f"- {note[0].upper()}{note[1:]} ({', '.join(names(verdicts, note))})." for note in notes
    ]
    heads = [
        "| claim | stated in | source | ours, 95% | band of ours | verdict |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    return [*told, *([""] if told else []), *heads, *rows]


def names(verdicts: Sequence[Result], note: str) -> list[str]:
    """The claims that a note is about, each once: `global step`."""
    noted = [each["words"].partition(": w")[0] for each in verdicts if each["note"] == note]
    return list(dict.fromkeys(noted))


def printed(verdict: Result) -> str:
    """What the source prints."""
    return "" if verdict["source_value"] is None else compared(verdict["source_value"])


def ours(verdict: Result) -> str:
    """Our mean with half of its interval."""
    found = verdict["ours"]
    if found["mean"] is None:
        return ""
    return mean_of_runs(found["mean"], found["low"], found["high"], found["n"])


def within(verdict: Result) -> str:
    """Where our mean has to lie."""
    return "" if verdict["band"] is None else band(verdict["band"]["low"], verdict["band"]["high"])


def why(verdict: Result) -> str:
    """The reason of a verdict, where the numbers beside it do not tell it."""
    tells = verdict["band"] is not None and verdict["verdict"] == "PASS"
    return "" if tells or not verdict["why"] else f": {verdict['why']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
