"""Writes a config as text: a client sends it to the queue of its class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from lab.config.model import Cluster
from lab.units import DELAY, MEMORY, RATE

_AMOUNTS: Final = {"memory": MEMORY, "rate": RATE, "delay": DELAY}
_MAX_NUMBER: Final = 10**9 - 1  # an amount has at most nine digits before the point


def text_of(cluster: Cluster) -> str:
    """Return the text of a config, without the parts that belong to a run.

    `parse_cluster` reads the same nodes, jobs and links from it. Only an amount of memory that is
    no whole number of KiB is rounded.
    """
    content = cluster.model_dump(
        mode="json", exclude_defaults=True, exclude={"run", "start", "faults"}
    )
    for part in (content.get("box", {}), *_values(content, "nodes"), *_values(content, "links")):
        for key, units in _AMOUNTS.items():
            if key in part:
                part[key] = _amount(part[key], units)
    return json.dumps(content, ensure_ascii=False)


def _values(content: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return list(content.get(key, {}).values())


def _amount(amount: int, units: Mapping[str, int]) -> str:
    """Return an amount in the largest unit that states it exactly, else to three decimals."""
    largest_first = sorted(units.items(), key=lambda each: each[1], reverse=True)
    for unit, size in largest_first:
        if amount % size == 0:
            return f"{amount // size}{unit}"
    unit, size = next(each for each in reversed(largest_first) if amount < _MAX_NUMBER * each[1])
    return f"{(Decimal(amount) / size).quantize(Decimal('0.001'))}{unit}"
