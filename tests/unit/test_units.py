"""Amounts with units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import units as sizes


@pytest.mark.parametrize(
    ("text", "units", "amount"),
    [
        ("8GiB", sizes.MEMORY, 8 * 1024**3),
        ("1.5GiB", sizes.MEMORY, 1536 * 1024**2),
        ("0.1KiB", sizes.MEMORY, 102),
        ("100mbit", sizes.RATE, 100_000_000),
        ("2.5gbit", sizes.RATE, 2_500_000_000),
        ("5ms", sizes.DELAY, 5000),
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


@given(st.integers(1, 2**50))
def test_the_engine_gets_the_exact_amount(amount: int) -> None:
    text = sizes.memory_for_engine(amount)
    factor = {"g": 1024**3, "m": 1024**2, "k": 1024, "b": 1}[text[-1]]
    assert int(text[:-1]) * factor == amount


def test_output_shows_a_rounded_amount() -> None:
    assert sizes.memory_for_people(8 * 1024**3) == "8 GiB"
    assert sizes.memory_for_people(1536 * 1024**2) == "1.5 GiB"
    assert sizes.memory_for_people(100) == "100 B"
