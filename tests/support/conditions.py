"""Conditions that a test needs on the machine."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from lab.backends.local import isolation


def lacking(what: str) -> NoReturn:
    """Skip a test with the reason; under CI, which has everything, fail instead."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def needs_namespaces() -> None:
    """Go on only where nodes can have namespaces of their own."""
    if (reason := isolation.unavailable_reason()) is not None:
        lacking(f"no namespaces here: {reason}")


ATTACKS = int(os.environ.get("LAB_ATTACKS", "1"))
"""How many times as many examples as at a landing the property tests have."""
