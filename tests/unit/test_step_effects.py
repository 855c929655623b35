"""Whether a refused step has changed nothing: decided on small steps, without TensorFlow."""

from __future__ import annotations

import pytest

from lab.task.sdk.refusals import is_false_refusal
from lab.task.tf1.step_effects import Doubt, Operation, doubt_of

FED = Operation("worker-0", stays=True)
WEIGHTS = Operation("ps-0", stays=True)


def gradient(*inputs: str) -> Operation:
    return Operation("worker-0", inputs=inputs)


def update(task: str | None, *inputs: str) -> Operation:
    return Operation(task, has_effect=True, inputs=inputs)


BOOK = {
    "x": FED,
    "weights": WEIGHTS,
    "gradient": gradient("x", "weights"),
    "apply": update("ps-0", "weights", "gradient"),
    "count": update("ps-0", "apply"),
}
"""One parameter server: the update waits for the value fed to the worker."""


def test_an_update_that_waits_for_the_other_task_is_safe() -> None:
    assert doubt_of(BOOK) is None


def test_an_update_that_does_not_wait_is_named_with_its_task() -> None:
    step = {**BOOK, "count": update("ps-0")}
    assert doubt_of(step) == Doubt("count", "ps-0", "worker-0")
    assert str(doubt_of(step)) == "count on ps-0 may have run: it does not wait for worker-0"


def test_every_update_counts_and_not_only_the_first() -> None:
    assert doubt_of({**BOOK, "z": update("ps-0", "weights")}) == Doubt("z", "ps-0", "worker-0")


def test_an_update_waits_for_all_other_tasks() -> None:
    biases = {"biases": Operation("ps-1", stays=True)}
    step = {**BOOK, **biases, "gradient": gradient("x", "weights", "biases")}
    assert doubt_of({**step, "more": update("ps-1", "gradient")}) is None
    # It waits for the worker, and not for the second server.
    assert doubt_of({**BOOK, **biases}) == Doubt("apply", "ps-0", "ps-1")


def test_two_updates_that_wait_for_nothing_are_not_safe() -> None:
    assert doubt_of({"a": update("ps-0"), "b": update("ps-1")}) == Doubt("a", "ps-0", "ps-1")


def test_steps_of_one_task_and_steps_without_changes_are_safe() -> None:
    assert doubt_of({"a": update("ps-0"), "b": update("ps-0")}) is None
    assert doubt_of({"x": FED, "weights": WEIGHTS, "y": Operation(None)}) is None


def test_removable_operations_are_not_awaited() -> None:
    step = {"weights": WEIGHTS, "constant": gradient(), "apply": update("ps-0", "constant")}
    assert doubt_of(step) == Doubt("apply", "ps-0", "worker-0")
    assert doubt_of({**step, "constant": FED}) is None


def test_an_operation_without_a_known_task_may_be_on_a_task_of_its_own() -> None:
    doubt = doubt_of({**BOOK, "unknown": Operation(None, stays=True)})
    assert doubt == Doubt("apply", "ps-0", "the unknown task of unknown")
    assert doubt_of({**BOOK, "apply": update(None, "weights", "gradient")}) == Doubt(
        "count", "ps-0", "the unknown task of apply"
    )
    assert doubt_of({"a": update(None), "b": update(None)}) is not None
    assert str(doubt_of({"a": update(None), "b": update(None)})).startswith("a on an unknown task")


def test_effects_of_a_function_are_unknown() -> None:
    step = {"call": Operation("ps-0", is_opaque=True)}
    assert doubt_of(step) == Doubt("call", "ps-0", None)
    assert str(doubt_of(step)) == "call on ps-0 runs a function, and may have run"


def test_a_chain_longer_than_pythons_stack() -> None:
    chain = {str(i): gradient(str(i + 1)) for i in range(5000)}
    step = {"apply": update("ps-0", "0"), **chain, "5000": FED}
    assert doubt_of(step) is None
    assert doubt_of({**step, "5000": gradient()}) is not None


REFUSED = (
    'The same RunGraph (Worker) request was received twice. goo.gle/debugstr  graph_handle: "1"'
)
CANCELLED = f"""\
Graph execution error:

=====================
CANCELLED: From /job:worker/replica:0/task:0:
RecvFromRemoteAsync is cancelled.
ABORTED: From /job:ps/replica:0/task:0:
{REFUSED}
====================="""


@pytest.mark.parametrize("message", [REFUSED, CANCELLED, f"ABORTED: {REFUSED}"])
def test_a_refused_step_is_recognized(message: str) -> None:
    assert is_false_refusal(message, {})
    assert is_false_refusal(message, {"GRPC_MAX_RETRIES": "0"})


@pytest.mark.parametrize(
    "message",
    [
        "Graph handle is not found",
        REFUSED.replace("RunGraph (Worker)", "RecvTensor (GrpcWorker)"),
        REFUSED.replace("RunGraph (Worker)", "RunStep (Master)"),
        f"Graph handle is not found\nRecent warning and error logs:\n  W0000 x.cc:1] {REFUSED}",
    ],
)
def test_any_other_error_is_no_false_refusal(message: str) -> None:
    assert not is_false_refusal(message, {})


def test_a_repeated_request_may_be_refused_rightly() -> None:
    assert not is_false_refusal(REFUSED, {"GRPC_MAX_RETRIES": "3"})


def test_the_variables_are_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPC_MAX_RETRIES", raising=False)
    assert is_false_refusal(REFUSED)
    monkeypatch.setenv("GRPC_MAX_RETRIES", "1")
    assert not is_false_refusal(REFUSED)
