"""Which error is a false refusal."""

from __future__ import annotations

import pytest

from lab.task.sdk.refusals import is_false_refusal

REFUSED = (
    'The same RunGraph (Worker) request was received twice. goo.gle/debugstr  graph_handle: "1"'
)


@pytest.mark.parametrize(
    ("message", "retries", "is_false"),
    [
        (REFUSED, "0", True),
        (f"Graph execution error:\n\nABORTED: From /job:ps/task:0:\n{REFUSED}\n===", "", True),
        (REFUSED, "3", False),  # a repeated request may be refused rightly
        ("Graph handle is not found", "", False),
        (REFUSED.replace("RunGraph (Worker)", "RecvTensor (GrpcWorker)"), "", False),
        (f"not found\nRecent warning and error logs:\n  W0000 x.cc:1] {REFUSED}", "", False),
    ],
)
def test_a_refused_step_is_recognized(
    monkeypatch: pytest.MonkeyPatch, message: str, retries: str, is_false: bool
) -> None:
    monkeypatch.setenv("GRPC_MAX_RETRIES", retries or "0")
    assert is_false_refusal(message) is is_false
