"""A time in the past, in the formats of the command line."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from lab.cli.durations import point_in_time


@pytest.mark.parametrize(
    ("raw", "ago"), [("10s", 10), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("0s", 0)]
)
def test_a_span_before_now(raw: str, ago: int) -> None:
    before = time.time()
    assert before - ago <= point_in_time(raw) <= time.time() - ago


def test_a_time() -> None:
    assert point_in_time("2026-11-21T14:05:00Z") == 1795269900.0
    assert point_in_time("2026-11-21T15:05+01:00") == 1795269900.0
    local = datetime(2026, 11, 21, 14, 5).astimezone().timestamp()
    assert point_in_time("2026-11-21T14:05") == local
    today = datetime.now().astimezone().replace(hour=8, minute=5, second=0, microsecond=0)
    assert point_in_time("8:05") == today.timestamp()


@pytest.mark.parametrize("raw", ["", "10", "m", "yesterday", "25:00", "2026-13-01", "1h5", "-5m"])
def test_invalid_times(raw: str) -> None:
    with pytest.raises(ValueError, match=r"a duration \(10m"):
        point_in_time(raw)
