"""The predictions in docs/outgrow.md, which were never validated."""

from __future__ import annotations

import contextlib
import io
import shlex
from typing import Final

from benchmarks.marks import put
from benchmarks.trainings import ROOT
from lab.cli import main

PAGE: Final = ROOT / "docs/outgrow.md"
_OPTIONS: Final = "--workers 8,64,512 --network 10gbit --cores 16"
_BEYOND: Final = "--beyond-validated"
COMMANDS: Final = {
    "async: each task on a host of its own": f"lab simulate async {_OPTIONS} {_BEYOND}",
    "the same with sync": f"lab simulate sync {_OPTIONS} {_BEYOND}",
    "a GPU takes 50 ms for a batch": f"lab simulate async {_OPTIONS} --step 50ms {_BEYOND}",
}


def printed() -> str:
    """Return the commands of the predictions, and what they print."""
    lines = [f"# {what}\n{command}" for what, command in COMMANDS.items()]
    outputs = [f"$ {command}\n{_output(command)}" for command in COMMANDS.values()]
    return "\n".join(["```", *lines, "```\n", "```", "\n".join(outputs) + "```"])


def keep_in_page() -> None:
    """Write the predictions into the page, between their marks."""
    PAGE.write_text(put(PAGE.read_text(encoding="utf-8"), "simulated", printed()), encoding="utf-8")


def _output(command: str) -> str:
    """Return what a command of lab prints to stdout."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
        if main(shlex.split(command)[1:]) != 0:
            raise ValueError(f"{command} failed")
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
