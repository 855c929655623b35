"""The table of all attacks, and the rows behind it."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.hostile.calls import Column, Fault

ROOT: Final = Path(__file__).parents[2]
ROWS: Final = ROOT / "docs/evidence/hostile.json"
PAGE: Final = ROOT / "docs/evidence/hostile.md"

WORDS: Final[Mapping[str, str]] = {
    "configs": "Cluster descriptions with one to three changes. Each one goes through"
    " `lab validate`. If it is valid, it also goes through the JSON Schema and `lab render`,"
    " and the rendered file is searched for rights, mounts, ports and variables that it must not"
    " have.",
    "arguments": "Command lines of all commands, with odd words, flags and values.",
    "runs": "Run directories with one damaged file, and eight commands on each; on every twentieth"
    " also `lab report` and `lab tensorboard`.",
    "records": "Records files with up to 20 lines that are no records. Every record beside them"
    " must still be read.",
    "archives": "Archives of runs with changed bytes, names, kinds of files or JSON. `lab import`"
    " must refuse them, or write only regular files of a run into the run store.",
}

_HEAD: Final = """\
# Hostile inputs

`make hostile` writes this page from `hostile.json`. Each input is made from its seed;
`python -m tests.hostile KIND --first SEED --inputs 1` repeats one. The commands run in one process
and have 180 seconds each. `make test` runs small numbers of the same, and programs that do harm.

- **Tracebacks**: an internal error, or a traceback.
- **Hangs**: a command that did not end.
- **Wrong successes**: a faulty description that was accepted, a rendered file that is unsafe, or a
  command that started something.
- **Bytes lost**: a record that was not read, or a file of somebody else's that was replaced.
- **Wrong messages**: not one line, too long, with control characters, with a warning of a library,
  or with another exit code than 0, 1 and 2; a damaged run that hides another.

"""


@dataclass(frozen=True)
class Row:
    """The results of the attacks of one kind.

    Attributes:
        kind: Which attacks.
        first: The first seed.
        inputs: The number of seeds.
        faults: Column to count.
        seconds: Their duration.
        date: When, in UTC.
        commit: The commit of the project.
    """

    kind: str
    first: int
    inputs: int
    faults: Mapping[str, int]
    seconds: float
    date: str
    commit: str

    @classmethod
    def of(cls, kind: str, first: int, inputs: int, faults: Sequence[Fault], seconds: float) -> Row:
        """The row of attacks that have ended just now."""
        counts = Counter(fault.column for fault in faults)
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        return cls(
            kind,
            first,
            inputs,
            {column.value: counts[column] for column in Column},
            round(seconds),
            time.strftime("%Y-%m-%d", time.gmtime()),
            commit,
        )

    def line(self) -> str:
        """The row of the table."""
        counts = " | ".join(f"{self.faults[column.value]:,}" for column in Column)
        where = f"{self.date}, {self.commit}"
        return f"| {self.kind} | {self.inputs:,} | {counts} | {self.seconds:,.0f} s | {where} |"


def keep(row: Row) -> None:
    """Write a row in place of an older one of its kind, and the page."""
    rows = {each.kind: each for each in read()} | {row.kind: row}
    ordered = [rows[kind] for kind in WORDS if kind in rows]
    ROWS.write_text(json.dumps([asdict(each) for each in ordered], indent=2) + "\n")
    PAGE.write_text(page(ordered), encoding="utf-8")


def read() -> list[Row]:
    """The rows that are there."""
    return [Row(**each) for each in json.loads(ROWS.read_text())] if ROWS.exists() else []


def page(rows: Sequence[Row]) -> str:
    """The page of these rows."""
    heads = ["kind", "inputs", *(column.value for column in Column), "time", "when"]
    lines = [
        f"| {' | '.join(heads)} |",
        f"| --- | {'---: | ' * (len(Column) + 2)}--- |",
        *(row.line() for row in rows),
    ]
    kinds = [f"- **{row.kind}**: {WORDS[row.kind]}" for row in rows]
    return _HEAD + "\n".join(lines) + "\n\n" + "\n".join(kinds) + "\n"
