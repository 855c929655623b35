"""Other ways to write `exchange` in the assignment `ring`, with threads of the student's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.assignments.ring import EXCHANGES, RING, STUCK_THREAD, with_exchange
from tests.e2e.test_assignments import hint, run_by_hand


@pytest.mark.parametrize("way", EXCHANGES, ids=lambda way: way.replace(" ", "-"))
def test_another_right_way_passes(tmp_path: Path, way: str) -> None:
    done = run_by_hand(tmp_path, RING, with_exchange(EXCHANGES[way]))
    assert done.returncode == 0, done.stderr


def test_ranks_that_wait_for_their_own_threads_get_a_hint(tmp_path: Path) -> None:
    done = run_by_hand(tmp_path, RING, with_exchange(STUCK_THREAD))
    assert "Which call doesn't wait?" in hint(done.stderr)
