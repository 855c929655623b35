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
            "",
            *words_table(book, IN_WORDS["book-async"]),
            "",
            "![Global step, and each worker's own steps, over time](docs/results/late-worker.png)",
            "",
            f"`lab report {first_whole(book)}`: worker 2 comes after 20,900 steps, and trains on"
            " alone when the others have finished.",
            "",
            "![Histograms of staleness](docs/results/staleness.png)",
            "",
            "The same page: how many updates of the others lie between a worker's reading the"
            " parameters and its own update.",
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
            f"`lab report {first_whole(book)} {first_whole(sync)}`: by updates the synchronous"
            " training learns as fast, by images three times slower.",
            "",
            "",
        ]
    )


def shown(words: Sequence[str]) -> list[str]:
    """A command as a reader types it."""
    return ["```sh", f"lab {' '.join(words)}", "```", ""]


def counted(result: Result) -> str:
    """How many claims came to which verdict."""
    words = [verdict["verdict"] for verdict in result["verdicts"]]
    parts = [f"{words.count(word)} {word}" for word in dict.fromkeys(words)]
    return f"{len(words)} claims: {', '.join(parts)}."


def of(result: Result, claim: str) -> list[Result]:
    """All verdicts of a claim, one for each worker and epoch that it is about."""
    return [each for each in result["verdicts"] if each["claim"].split(".")[0] == claim]


def mean_of(result: Result, claim: str) -> float:
    """The mean that our runs have of one claim."""
    (found,) = [each for each in result["verdicts"] if each["claim"] == claim]
    return float(found["ours"]["mean"])


def first_whole(result: Result) -> str:
    """The first run, which is one of the whole chapter."""
    return str(result["runs"][0])


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


def words_table(result: Result, claims: Sequence[str]) -> list[str]:
    """What the book says in words, and what came of it."""
    rows = [each for claim in claims for each in of(result, claim)]
    lines = [f"| {each['words']} | {each['verdict']} | {each['why']} |" for each in rows]
    return ["| the book says | verdict | by |", "| --- | --- | --- |", *lines]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
