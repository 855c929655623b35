"""A series of failures of a volume lasts until its limit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lab.protocol.volume import files
from lab.protocol.volume.files import Patience

ERROR = OSError("the volume refuses")


def test_a_series_ends_after_its_limit_and_never_at_its_first_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reporting the first failure may take longer than the limit."""
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(files, "time", SimpleNamespace(monotonic=lambda: now.s))
    reported = []

    def report(error: OSError) -> None:
        reported.append(error)
        now.s += 9.0

    patience = Patience(8.0, report)
    assert not patience.fail(ERROR)
    assert patience.fail(ERROR)
    assert not patience.fail(ERROR, progress=1)  # a new series
    patience.succeed()
    assert not patience.fail(ERROR, progress=1)
    assert reported == [ERROR] * 3
