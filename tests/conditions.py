"""What a test needs of the machine."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from lab.backends.local import isolation


def lacking(what: str) -> NoReturn:
    """Skip a test aloud for what is missing; under CI, where all of it can be had, it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def needs_namespaces() -> None:
    """Go on only where nodes can have namespaces of their own."""
    if (reason := isolation.unavailable_reason()) is not None:
        lacking(f"no namespaces here: {reason}")
