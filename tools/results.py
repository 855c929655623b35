"""Reproduce the sources' trainings, and write `docs/explanation/results.md` and README's counts.

`python -m tools.results [NAME…]` trains (90 minutes on two cores), keeps the runs in
`docs/results/runs`, judges them and writes the texts. With `--kept` it trains nothing, and judges
the kept runs again.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from benchmarks.marks import put
from lab.base import strict_json
from lab.base.formatting import band, compared, counted
from lab.study.reproduce.claims import COUNTED, KINDS, NAMES, Kind, load
from lab.study.reproduce.plan import ended_runs
from lab.study.reproduce.verdicts import Verdict, evaluate
from tools.samples import texts_of

ROOT: Final = Path(__file__).resolve().parents[1]
README: Final = ROOT / "README.md"
PAGE: Final = ROOT / "docs/explanation/results.md"
KEPT: Final = ROOT / "docs/results"

OPTIONS: Final = ("--quick", "--backend", "local")
"""Options of the `lab reproduce` that makes the runs."""

EXIT_CODES: Final = (0, 1, 3)
"""Exit codes with which `lab reproduce` prints verdicts."""

VERDICTS: Final = {
    Verdict.REPRODUCED: "reproduced",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.NOT_REPRODUCED: "not reproduced",
}

COLOURS: Final = {
    Verdict.REPRODUCED: "success",
    Verdict.OK: "success",
    Verdict.NOT_REPRODUCED: "failure",
    Verdict.FAILED: "failure",
}
"""The class of a verdict's block on the page; the other verdicts have "warning"."""

Result = Mapping[str, Any]
"""The content of a file of `lab reproduce`, without the time of its evaluation."""


def main(argv: Sequence[str]) -> int:
    """Train, unless `--kept` is given; then judge the runs and write the texts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kept", action="store_true", help="judge the kept runs without training")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)} (default: all)"
    )
    options = parser.parse_args(argv)
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; use {', '.join(NAMES)}")
    for name in options.names or NAMES:
        if not options.kept:
            train(name, ROOT / "runs/results" / name)
        if archive(name).is_file():
            text = json.dumps(judged(name), indent=1)
            (KEPT / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    results = kept()
    README.write_text(put(README.read_text(), "results", f"{sentences(results.values())}\n"))
    PAGE.write_text(page(results))
    return 0


def kept() -> dict[str, Result]:
    """Return name to its result in `docs/results/`; a name without a result is missing."""
    paths = {name: KEPT / f"{name}.json" for name in NAMES}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.is_file()}


def archive(name: str) -> Path:
    """Return the file of a source's runs."""
    return KEPT / "runs" / f"{name}.tar.xz"


def train(name: str, store: Path) -> None:
    """Make a source's runs in a new run store, and keep them."""
    shutil.rmtree(store, ignore_errors=True)
    lab("reproduce", name, *OPTIONS, "--runs-dir", str(store), codes=EXIT_CODES)
    pack(name, [path.parent for path in store.glob("*/run.json")])


def pack(name: str, runs: Iterable[Path]) -> None:
    """Keep runs of a source, without paths of this host; equal files make equal archives."""
    archive(name).parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive(name), "w:xz", preset=9) as tar:
        for run in sorted(runs):
            for file, text in sorted(texts_of(run).items()):
                data = text.encode()
                entry = tarfile.TarInfo(f"{run.name}/{file}")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))


def unpack(name: str, target: Path) -> None:
    """Unpack the kept runs of a source into a directory."""
    with tarfile.open(archive(name)) as tar:
        tar.extractall(target, filter="data")


def judged(name: str) -> dict[str, Any]:
    """Judge the kept runs of a source."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(name, Path(folder))
        runs = ended_runs([folder], Path(folder))
        result: dict[str, Any] = json.loads(strict_json.dump(evaluate(load(name), runs).json))
    del result["made"]
    return result


def lab(*args: str, codes: Sequence[int] = (0,)) -> None:
    """Run a `lab` command."""
    with subprocess.Popen([sys.executable, "-m", "lab", *args], cwd=ROOT) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the command also receives Ctrl-C, and cleans up
            process.wait()
            sys.exit(130)
    if code not in codes:
        sys.exit(f"error: lab {' '.join(args)}: exit code {code}")


def section(results: Mapping[str, Result]) -> str:
    """Return the counts of each source in Markdown; a pure function of the results."""
    head = ["source", *(f"{noun}s" for noun in COUNTED.values())]
    rows = [
        [f"`{name}`", *(counts([result], kind) or "no claims" for kind in COUNTED)]
        for name, result in results.items()
    ]
    missing = [
        f"\n`lab reproduce {name}` has no kept runs." for name in NAMES if name not in results
    ]
    return "\n".join([sentences(results.values()), "", *table(head, rows), *missing, ""])


def sentences(results: Collection[Result]) -> str:
    """Return README's text, the counts of all sources: `Of the 5 measured numbers …`."""
    return " ".join(
        f"Of the {counted(len(of_kind(results, kind)), noun)} in the sources,"
        f" {counts(results, kind, verbs=True)}."
        for kind, noun in COUNTED.items()
    )


def counts(results: Iterable[Result], kind: Kind, *, verbs: bool = False) -> str:
    """Return the counts of each verdict on claims of a kind: `2 reproduced, 1 inconclusive`."""
    found = Counter(each["verdict"] for each in of_kind(results, kind))
    if not verbs:
        return ", ".join(f"{found[each]} {text}" for each, text in VERDICTS.items() if found[each])
    parts = [
        f"{found[each] or 'none'} {'is' if found[each] <= 1 else 'are'} {text}"
        for each, text in VERDICTS.items()
    ]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def of_kind(results: Iterable[Result], kind: Kind) -> list[Result]:
    """Return the results of the claims of a kind."""
    return [each for result in results for each in result["claims"] if each["kind"] == kind]


def page(results: Mapping[str, Result]) -> str:
    """Return the text of `docs/explanation/results.md`; a pure function of the results."""
    lines = [
        "# Results",
        "",
        section(results),
        "This page lists the verdict of `lab reproduce` on each claim in the sources. A block shows"
        " the verdict and the claim, the value that the source prints, our value with the interval"
        " for one more run, the reason for the verdict, and the place in the source. Settings,"
        " checks, and numbers that follow from a fitted parameter aren't counted."
        " [Reproduce](../how-to/reproduce.md) explains the rules.",
        "",
        "`make results` repeats the runs, keeps them in `docs/results/runs/`, and writes this page."
        " All runs used processes on two shared cores, without a GPU. The cores did other work at"
        " the same time, which widens the intervals for speeds, such as the number of global steps"
        " per step of a worker. You can judge the kept runs yourself:",
        "",
        "```sh",
        "mkdir -p runs/kept && tar -xf docs/results/runs/book-sync.tar.xz -C runs/kept",
        "lab reproduce book-sync --runs runs/kept",
        "```",
        "",
    ]
    for name, result in results.items():
        lines += chapter(name, result)
    return "\n".join(lines)


def chapter(name: str, result: Result) -> list[str]:
    """Return the section of the page about one source: its command, runs and claims."""
    runs = sorted(run for by_seed in result["runs"].values() for run in by_seed.values())
    made = f", from {runs[0][:13]} to {runs[-1][:13]} (UTC)" if runs else ""
    notes = [f"- Left out: run {run}: {why}." for run, why in result["excluded"].items()]
    notes += [f"- Fitted for `{role}`: {', '.join(p)}." for role, p in result["fitted"].items()]
    lines = [
        f"## {name}",
        "",
        f"The source is {result['source']}. We collected {counted(len(runs), 'run')} with"
        f" `lab reproduce {name} {' '.join(OPTIONS)}`{made}. {result['summary']}.",
        *(["", *notes] if notes else []),
        "",
    ]
    for kind, title in KINDS.items():
        blocks = [block(each) for each in of_kind([result], kind)]
        heading = f"{title[0].upper()}{title[1:]}"
        if blocks and kind in COUNTED:
            lines += [f"### {heading}", "", *blocks, ""]
        elif blocks:
            lines += [f"<details><summary>{heading}</summary>", *blocks, "</details>", ""]
    return lines


def block(each: Result) -> str:
    """Return a claim as an admonition: its verdict and text, the values, why, and its place."""
    interval, printed, ours = each["interval"], each["printed"], each["ours"]
    unit = f" {each['unit']}" if printed is None and each["unit"] else ""
    values = [] if printed is None else [f"printed {compared(printed)}"]
    values += [] if ours is None else [f"ours {compared(ours)}{unit}"]
    around = "" if interval is None else f" ({band(interval['low'], interval['high'])})"
    found = f"{', '.join(values)}{around}{': ' if values else ''}{each['why']}"
    place = each["where"] if each["kind"] == "check" else f"in the source: {each['where']}"
    return (
        f'<div class="admonition {COLOURS.get(each["verdict"], "warning")}">'
        f'<p class="admonition-title">{each["verdict"]}: {escape(each["text"], quote=False)}</p>'
        f"<p>{escape(found, quote=False)}<br><small>{escape(place, quote=False)}</small></p></div>"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
