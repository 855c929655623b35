"""Draw figures of the loss from the runs of the commands above them.

`python tools/page_figures.py readme` runs commands of "Your first run" in an empty run store, in
their order: what `make run` trains, and each `lab run` and `lab report` of the section "Compare it
with another run" (two minutes). `python tools/page_figures.py three-frameworks` does the same with
the section "Run" of the lesson (five minutes). A figure of the report becomes the one of the page.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

_MAKE_RUN: Final = re.compile(r"^run:.*\n\t\$\(LAB\) (run .*)", re.MULTILINE)


@dataclass(frozen=True)
class Figure:
    """A figure of a page.

    Attributes:
        page: The page, relative to the repository.
        section: Its section with the commands.
        image: The figure's file, relative to the repository.
        after_make_run: Whether the reader has trained by `make run` before.
    """

    page: str
    section: str
    image: str
    after_make_run: bool = False


FIGURES: Final = {
    "readme": Figure(
        "docs/start/first-run.md",
        "Compare it with another run",
        "docs/images/loss.png",
        after_make_run=True,
    ),
    "three-frameworks": Figure(
        "docs/tutorials/lessons/three-frameworks.md", "Run", "docs/images/three-frameworks.png"
    ),
}


def commands(figure: Figure) -> list[list[str]]:
    """Return the arguments of each `lab` command that makes a figure."""
    text = (ROOT / figure.page).read_text("utf-8")
    section = re.search(rf"^## {figure.section}\n+```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    make_run = _MAKE_RUN.search((ROOT / "Makefile").read_text("utf-8"))
    if make_run is None or section is None:
        sys.exit(f"error: Makefile has no target run, or {figure.page} no section {figure.section}")
    lines = [shlex.split(line, comments=True) for line in section[1].splitlines()]
    shown = [words[1:] for words in lines if words[:2] in (["lab", "run"], ["lab", "report"])]
    return [*([shlex.split(make_run[1])] if figure.after_make_run else []), *shown]


def main(name: str) -> None:
    """Run the commands of a figure, and keep it."""
    figure = FIGURES[name]
    with tempfile.TemporaryDirectory() as folder:
        for words in commands(figure):
            output = ["--output", f"{folder}/report.html"] if words[0] == "report" else []
            command = [sys.executable, "-m", "lab", *words, *output, "--runs-dir", f"{folder}/runs"]
            subprocess.run(command, cwd=ROOT, check=True)
        shutil.copyfile(f"{folder}/report-figures/loss.png", ROOT / figure.image)


if __name__ == "__main__":
    if sys.argv[1:] not in [[name] for name in FIGURES]:
        sys.exit(f"usage: python tools/page_figures.py {'|'.join(FIGURES)}")
    main(sys.argv[1])
