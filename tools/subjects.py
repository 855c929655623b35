"""Check that the subjects of new commits are short: `python -m tools.subjects`.

It checks the commits after `START` up to HEAD, without merges. Without them, such as in a shallow
clone or a source archive, it has nothing to check, and says so.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
START: Final = "f039f53ec7d086c84ad059fee4b5e62f2100ff28"
"""The last commit whose subject, like those before it, may be longer."""

LIMIT: Final = 72


def main(root: Path, start: str = START) -> int:
    """Name each commit with a long subject; return 1 if there is one."""
    if _git(root, "merge-base", "--is-ancestor", start, "HEAD").returncode:
        print(f"subjects: nothing to check: no commits after {start[:8]} here")
        return 0
    commits = _git(root, "log", "--no-merges", "--format=%h %s", f"{start}..HEAD").stdout
    long = [line for line in commits.splitlines() if len(line.partition(" ")[2]) > LIMIT]
    for line in long:
        print(f"error: a subject has more than {LIMIT} characters; shorten it: {line}")
    return int(bool(long))


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main(ROOT))
