"""Attacks in large numbers, by hand.

    python -m tests.hostile                       all of them (20 minutes)
    python -m tests.hostile configs --inputs 1000 [--first 0]

Each kind writes its row of docs/evidence/hostile.md. Exit code 1: something is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.hostile import table
from tests.hostile.campaign import KINDS, shares


def main() -> None:
    """Attack, count and write."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], metavar="KIND")
    parser.add_argument("--inputs", type=int, help="how many (default: see the table)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    asked = parser.parse_args()
    is_bad = False
    for kind in asked.kinds or KINDS:
        inputs = asked.inputs or KINDS[kind][1]
        began = time.monotonic()
        faults = [fault for found in shares(kind, asked.first, inputs) for fault in found]
        row = table.Row.of(kind, asked.first, inputs, faults, time.monotonic() - began)
        for fault in faults:
            print(f"{kind}: {fault.column}: {fault.words}")
        print(row.line())
        if inputs == KINDS[kind][1]:
            table.keep(row)
        is_bad |= bool(faults)
    sys.exit(is_bad)


if __name__ == "__main__":
    main()
