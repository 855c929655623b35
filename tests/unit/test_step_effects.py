"""Whether a refused step has changed nothing, and which error is a false refusal."""

from __future__ import annotations

import pytest

from lab.task.sdk.refusals import is_false_refusal
from lab.task.tf1.step_effects import Doubt, Operation, doubt_of

BOOK = {
    "x": Operation("worker-0", stays=True),
    "weights": Operation("ps-0", stays=True),
    "gradient": Operation("worker-0", inputs=("x", "weights")),
    "apply": Operation("ps-0", has_effect=True, inputs=("weights", "gradient")),
    "count": Operation("ps-0", has_effect=True, inputs=("apply",)),
}
"""One parameter server: the update waits for the value fed to the worker."""


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({}, None),
        ({"count": Operation("ps-0", has_effect=True)}, Doubt("count", "ps-0", "worker-0")),
        ({"biases": Operation("ps-1", stays=True)}, Doubt("apply", "ps-0", "ps-1")),
        ({"x": Operation("worker-0")}, Doubt("apply", "ps-0", "worker-0")),  # it is removable
        ({"call": Operation("ps-0", is_opaque=True)}, Doubt("call", "ps-0", None)),
        (
            {"unknown": Operation(None, stays=True)},
            Doubt("apply", "ps-0", "the unknown task of unknown"),
        ),
    ],
)
def test_a_step_is_safe_if_each_update_waits_for_all_other_tasks(
    changes: dict[str, Operation], doubt: Doubt | None
) -> None:
    assert doubt_of({**BOOK, **changes}) == doubt


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
