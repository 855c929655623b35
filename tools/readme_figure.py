"""Draw README's figure of the loss from the runs of the commands above it.

`python tools/readme_figure.py` runs these commands in an empty run store, in their order: what
`make run` trains, and each `lab run` and `lab report` of README's section "See it" (about two
minutes). The report's figure becomes `docs/images/loss.png`.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FIGURE: Final = ROOT / "docs/images/loss.png"

_SECTION: Final = re.compile(r"^## See it\n+```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_MAKE_RUN: Final = re.compile(r"^run:.*\n\t\$\(LAB\) (run .*)", re.MULTILINE)


def commands(readme: str, makefile: str) -> list[list[str]]:
    """Return the arguments of each `lab` command that makes the figure.

    Args:
        readme: The text of README.md.
        makefile: The text of the Makefile.
    """
    make_run, section = _MAKE_RUN.search(makefile), _SECTION.search(readme)
    if make_run is None or section is None:
        sys.exit("error: Makefile has no target run, or README.md no section See it: add it")
    lines = [shlex.split(line, comments=True) for line in section[1].splitlines()]
    shown = [words[1:] for words in lines if words[:2] in (["lab", "run"], ["lab", "report"])]
    return [shlex.split(make_run[1]), *shown]


def main() -> None:
    """Run the commands, and keep the figure."""
    texts = [(ROOT / name).read_text("utf-8") for name in ("README.md", "Makefile")]
    with tempfile.TemporaryDirectory() as folder:
        for words in commands(*texts):
            output = ["--output", f"{folder}/report.html"] if words[0] == "report" else []
            command = [sys.executable, "-m", "lab", *words, *output, "--runs-dir", f"{folder}/runs"]
            subprocess.run(command, cwd=ROOT, check=True)
        shutil.copyfile(f"{folder}/report-figures/loss.png", FIGURE)


if __name__ == "__main__":
    main()
