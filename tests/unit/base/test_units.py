"""Amounts with units, and moments on the command line."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.base import units as sizes
from lab.base.converters import point_in_time


@pytest.mark.parametrize(
    ("text", "units", "amount"),
    [
        ("8GiB", sizes.MEMORY, 8 * 1024**3),
        ("1.5GiB", sizes.MEMORY, 1536 * 1024**2),
        ("0.1KiB", sizes.MEMORY, 102),
        ("100mbit", sizes.RATE, 100_000_000),
        ("2.5gbit", sizes.RATE, 2_500_000_000),
        ("0.2ms", sizes.DELAY, 200),
        ("1s", sizes.DELAY, 1_000_000),
    ],
)
def test_an_amount_is_read_exactly(text: str, units: dict[str, int], amount: int) -> None:
    assert sizes.parse(text, units) == amount


@pytest.mark.parametrize(
    "text", ["", "8", "GiB", "8G", "8 GiB", "-8GiB", "8gib", "8GiB\n", "٨GiB", "1e3GiB", "1.GiB"]
)
def test_invalid_amounts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="KiB, MiB, GiB, TiB"):
        sizes.parse(text, sizes.MEMORY)


@given(st.integers(1, 10**9 - 1))
def test_an_exact_amount_is_read_back(amount: int) -> None:
    text = sizes.exact(amount * sizes.KIB, sizes.MEMORY)
    assert sizes.parse(text, sizes.MEMORY) == amount * sizes.KIB


@pytest.mark.parametrize(
    ("amount", "shown"), [(8 * 1024**3, "8 GiB"), (1536 * 1024**2, "1.5 GiB"), (100, "100 B")]
)
def test_output_shows_a_rounded_amount(amount: int, shown: str) -> None:
    assert sizes.memory_for_people(amount) == shown


@pytest.mark.parametrize(
    ("raw", "ago"), [("10s", 10), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("1m0.5s", 60.5)]
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
