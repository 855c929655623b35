"""What a reproduction comes to, as a file that others read."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab.reproduce.claims import GROUPS, Source
from lab.reproduce.judge import Verdict


def as_json(source: Source, verdicts: Sequence[Verdict], runs: Sequence[str]) -> dict[str, Any]:
    """All verdicts, how many there are of each in each group, and the runs that they are about."""
    counts = {group: Counter(v.verdict for v in verdicts if v.group == group) for group in GROUPS}
    return {
        "name": source.name,
        "source": source.title,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "counts": {group: dict(found) for group, found in counts.items()},
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "runs": list(runs),
    }


def path_of(home: Path, source: Source) -> Path:
    """A file that is not there yet: `reproduce-book-async-20261122-0810.json`."""
    stem = f"reproduce-{source.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    found = home / f"{stem}.json"
    count = 1
    while found.exists():
        count += 1
        found = home / f"{stem}-{count}.json"
    return found
