"""Train what the book tells of, and write the README's section of results from it.

`python tools/results.py` trains, draws and writes, some six minutes on two cores; with `--write` it
only writes the section anew, from `docs/results/*.json`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
README: Final = ROOT / "README.md"
KEPT: Final = ROOT / "docs/results"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"

WORKERS: Final = (0, 1, 2)
EPOCHS: Final = (9, 19, 29, 39, 49)
IN_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "book-async": (
        "local-in-step",
        "global-varies",
        "global-no-pattern",
        "last-tests-best",
        "late-starter",
        "long-overlap",
    ),
    "book-sync": ("in-step", "slowest-sets-pace", "others-run-ahead", "steadier"),
}
JUDGED: Final = (0, 1, 3)
"""Exit codes of `lab reproduce` that come with verdicts, whatever these are."""

Result = Mapping[str, Any]
"""What `lab reproduce --json` prints."""


def main(argv: Sequence[str]) -> int:
    """Train and draw, unless only the text is wanted; then write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="only write the section anew")
    if not parser.parse_args(argv).write:
        train_and_draw(ROOT / "runs/results")
    kept = {name: json.loads((KEPT / f"{name}.json").read_text()) for name in IN_WORDS}
    README.write_text(put(README.read_text(), section(kept)))
    return 0


def train_and_draw(home: Path) -> None:
    """Make all runs, and from them what is kept in `docs/results/`."""
    shutil.rmtree(home, ignore_errors=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    runs = {}
    for name in IN_WORDS:
        said = lab(home, *reproduce(name), "--json", codes=JUDGED)
        (KEPT / f"{name}.json").write_text(said)
        runs[name] = json.loads(said)["runs"]
    states = {run: state_of(home / run) for several in runs.values() for run in several}
    whole = {
        name: [run for run in several if states[run] == name.removeprefix("book-")]
        for name, several in runs.items()
    }
    lab(home, "report", whole["book-async"][0])
    lab(home, "report", whole["book-async"][0], whole["book-sync"][0])
    keep(home / whole["book-async"][0] / "figures/progress.png", "late-worker.png")
    keep(home / whole["book-async"][0] / "figures/staleness.png", "staleness.png")
    keep(home / "figures/loss.png", "loss.png")


def state_of(run: Path) -> str:
    """`async` or `sync` for a run of the whole chapter that nothing was done to; else ""."""
    info = json.loads((run / "run.json").read_text())
    is_whole = info["hyperparameters"].get("epochs") == 50 and not info["faults"]  # noqa: PLR2004
    return str(info["experiment"]).removesuffix("-fast") if is_whole else ""


def reproduce(name: str) -> tuple[str, ...]:
    """The words of the command that a reader is shown, and that is run."""
    return ("reproduce", name, "--quick", "--backend", "local")


def lab(home: Path, *words: str, codes: Sequence[int] = (0,)) -> str:
    """Run a command of the lab; what it prints on its standard output."""
    command = [sys.executable, "-m", "lab", *words, "--runs-dir", str(home)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in codes:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}")
    return done.stdout


def keep(figure: Path, name: str) -> None:
    """Copy a figure to where the README shows it from."""
    shutil.copyfile(figure, KEPT / name)


def put(text: str, new: str) -> str:
    """The README with another section between its marks."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{README} lacks the marks of its results")
    return f"{head}{BEGIN}{new}{END}{tail}"


def section(results: Mapping[str, Result]) -> str:
    """The section in Markdown; a pure function of what was judged."""
    book, sync = results["book-async"], results["book-sync"]
    return "\n".join(
        [
            "",
            "### What the book prints",
            "",
            *shown(reproduce("book-async")),
            f"{counted(book)} Three trainings of the whole chapter, each with a seed of its own:"
            " 82,500 updates, in which worker 2 comes late, as the book's did. The means of ours:",
            "",
            *printed_table(book),
            "",
            "| final accuracy | worker 0 | worker 1 | worker 2 |",
            "| --- | ---: | ---: | ---: |",
            accuracies("the book", [each["source_value"] for each in of(book, "accuracy")]),
            accuracies("here, the mean", [each["ours"]["mean"] for each in of(book, "accuracy")]),
            bands("where ours must lie", [each["band"] for each in of(book, "accuracy")]),
            "",
            "That band is for the initial weights of these three seeds, by an independent NumPy"
            " reference. The book's accuracies lie where a run from any weights does.",
            "",
            *words_table(book, IN_WORDS["book-async"]),
            "",
            "![Global step, and each worker's own steps, over time](docs/results/late-worker.png)",
            "",
            "Made with `lab report RUN`, of the first of these trainings. At the mark ① worker 2"
            " comes, after 20,900 steps; it trains on alone when the others have finished.",
            "",
            "![Histograms of staleness](docs/results/staleness.png)",
            "",
            "The same page: how many updates of the others lie between a worker's reading the"
            " parameters and its own update. The dashed line is a worker's mean.",
            "",
            "### What the book does not print: the synchronous training",
            "",
            *shown(reproduce("book-sync")),
            f"{counted(sync)} All workers test the same parameters after 27,500 updates; accuracy"
            f" {mean_of(sync, 'accuracy.worker-0'):.4f}, the mean of three seeds.",
            "",
            *words_table(sync, IN_WORDS["book-sync"]),
            "",
            "![Loss by updates, by time, and by images](docs/results/loss.png)",
            "",
            "Made with `lab report RUN RUN`, of the first asynchronous and the first synchronous"
            " training: by updates the latter learns as fast, by images three times slower.",
            "",
            "",
        ]
    )


def shown(words: Sequence[str]) -> list[str]:
    """A command as a reader types it."""
    return ["```sh", f"lab {' '.join(words)}", "```", ""]


def counted(result: Result) -> str:
    """How many claims of the book came to which verdict, and how many checks of our own."""
    ours = [each for each in result["verdicts"] if is_ours(each)]
    claims = [each for each in result["verdicts"] if not is_ours(each)]
    return (
        f"{len(claims)} claims of the book: {words_of(claims)}; {len(ours)} checks that it has not:"
        f" {words_of(ours)}."
    )


def is_ours(verdict: Result) -> bool:
    """Whether the book says nothing of it: that no run failed, and what the oracle alone knows."""
    is_witness = verdict["claim"].startswith("accuracy") and verdict["source_value"] is None
    return is_witness or verdict["claim"] in {"runs", "late-loss"}


def words_of(verdicts: Sequence[Result]) -> str:
    """`47 PASS`."""
    words = [verdict["verdict"] for verdict in verdicts]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def of(result: Result, claim: str) -> list[Result]:
    """All verdicts of a claim, one for each worker and epoch that it is about."""
    return [each for each in result["verdicts"] if each["claim"].split(".")[0] == claim]


def mean_of(result: Result, claim: str) -> float:
    """The mean that our runs have of one claim."""
    (found,) = [each for each in result["verdicts"] if each["claim"] == claim]
    return float(found["ours"]["mean"])


def printed_table(result: Result) -> list[str]:
    """The book's table of global steps beside ours."""
    found = {each["claim"]: each for each in of(result, "global-step")}
    lines = [
        "| global step | " + " | ".join(f"epoch {epoch}" for epoch in EPOCHS) + " |",
        "| --- |" + " ---: |" * len(EPOCHS),
    ]
    for worker in WORKERS:
        row = [found[f"global-step.worker-{worker}.epoch-{epoch}"] for epoch in EPOCHS]
        printed = [f"{each['source_value']:,.0f}" for each in row]
        made = [f"{each['ours']['mean']:,.0f}" for each in row]
        lines.append(f"| worker {worker}, the book | {' | '.join(printed)} |")
        lines.append(f"| worker {worker}, here | {' | '.join(made)} |")
    return lines


def accuracies(whose: str, values: Sequence[float]) -> str:
    """A row of the table of accuracies."""
    return f"| {whose} | {' | '.join(f'{value:.4f}' for value in values)} |"


def bands(whose: str, values: Sequence[Mapping[str, float]]) -> str:
    """A row with where they must lie."""
    shown = [f"{each['low']:.4f} to {each['high']:.4f}" for each in values]
    return f"| {whose} | {' | '.join(shown)} |"


def words_table(result: Result, claims: Sequence[str]) -> list[str]:
    """What the book says in words, and what came of it."""
    rows = [each for claim in claims for each in of(result, claim)]
    lines = [f"| {each['words']} | {each['verdict']} | {each['why']} |" for each in rows]
    return ["| the book says | verdict | by |", "| --- | --- | --- |", *lines]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
