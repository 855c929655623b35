"""Run a step again that TensorFlow refused by mistake, where that step has changed nothing.

All sessions of a program pass one method with each step: `tf.Session.run`, the sessions of
Supervisor and MonitoredTrainingSession, and the callables of queue runners. The graph is looked at
only after a refusal.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import tensorflow.compat.v1 as tf
from tensorflow.python.client.pywrap_tf_session import TF_OperationName
from tensorflow.python.client.session import BaseSession
from tensorflow.python.framework import op_def_registry

from lab.task.sdk.refusals import is_false_refusal
from lab.task.tf1.step_effects import Operation, doubt_of

ATTEMPTS: Final = 5
"""A step is given up when TensorFlow refuses it so often in a row."""

_RETRIED: Final = "TensorFlow refused a step by mistake; it runs again"
_HINT: Final = "start the run again; docs/listings.md says which programs this can stop"

_STATES: Final = frozenset(
    {
        *("Variable", "VariableV2", "VarHandleOp"),
        *("FIFOQueueV2", "PaddingFIFOQueueV2", "PriorityQueueV2", "RandomShuffleQueueV2"),
        *("ConditionalAccumulator", "ResourceConditionalAccumulator"),
        "SparseConditionalAccumulator",
        "Timestamp",
    }
)
"""Types of operations that hold a state, and the clock. They have no effect, and always stay."""

_HARMLESS: Final = frozenset(
    {
        *_STATES,
        *("ReadVariableOp", "ResourceGather", "ResourceGatherNd"),
        *("IsVariableInitialized", "VarIsInitializedOp"),
        *("QueueSizeV2", "QueueIsClosedV2", "Assert"),
        *("AccumulatorNumAccumulated", "ResourceAccumulatorNumAccumulated"),
        # The numbers that the refused step has drawn are lost.
        *("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal"),
        *("ParameterizedTruncatedNormal", "RandomGammaV2", "RandomPoissonV2"),
        *("RandomShuffle", "Multinomial"),
    }
)
"""Types of stateful operations that may run once more than the program asked for."""

_PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2"})
_MERGES: Final = frozenset({"Merge", "RefMerge"})
_DEVICE: Final = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)/")

Output = tuple[str, int]
"""The name of an operation, and the number of one of its outputs."""

Task = tuple[str, str]
"""A job and an index."""


def retry_refused_steps(notify: Callable[[str], None], give_up: Callable[[str], None]) -> None:
    """Let every session of this process run a refused step again that has changed nothing.

    Args:
        notify: Receives a line for each step that runs again.
        give_up: Ends the program with a line that says why; called for a step that may have
            changed something, or that is refused again and again.
    """
    run_once = BaseSession._call_tf_sessionrun

    @functools.wraps(run_once)
    def run(session: Any, *step: Any) -> Any:
        attempt = 0
        while True:
            attempt += 1
            try:
                return run_once(session, *step)
            except (tf.errors.AbortedError, tf.errors.CancelledError) as error:
                # Cancelled are the parts on other tasks, and their error may come first.
                if not is_false_refusal(error.message):
                    raise
                why = _doubt(session, *step) if attempt < ATTEMPTS else f"{attempt} times in a row"
                if why:
                    give_up(f"TensorFlow refused a step by mistake, {why}; {_HINT}")
                    raise
            notify(_RETRIED)

    BaseSession._call_tf_sessionrun = run


def _doubt(session: Any, _: Any, feeds: Any, fetches: Any, targets: Any, *__: Any) -> str | None:
    devices = [device.name for device in session.list_devices()]
    outputs = map(_output, fetches)
    names = map(TF_OperationName, targets)
    doubt = doubt_of(step_of(session.graph, outputs, names, {*map(_output, feeds)}, devices))
    return None if doubt is None else f"and {doubt}"


def step_of(
    graph: Any,
    fetches: Iterable[Output],
    targets: Iterable[str],
    feeds: Collection[Output],
    devices: Iterable[str],
) -> dict[str, Operation]:
    """Describe the operations that a step runs, and what it is fed.

    Args:
        graph: The session's.
        fetches: The outputs that it returns.
        targets: Names of the operations that it runs besides.
        feeds: The outputs that are replaced by fed values.
        devices: Full names of the session's devices. The first is one of the task that the session
            talks to, which receives the fed values and the fetched ones.
    """
    tasks = [*dict.fromkeys(task for each in devices for task in _DEVICE.findall(each))]
    fetched = [name for name, index in fetches if (name, index) not in feeds]
    fed = {_fed(name, index): (name, index) for name, index in feeds}
    step = {
        name: Operation(
            "-".join(tasks[0]), stays=graph.get_operation_by_name(output[0]).type in _PLACEHOLDERS
        )
        for name, output in fed.items()
    }
    if fetched:
        step["(fetched)"] = Operation("-".join(tasks[0]), inputs=tuple(fetched))
    left = [*fetched, *targets]
    while left:
        name = left.pop()
        if name in step:
            continue
        op = graph.get_operation_by_name(name)
        data, control = _inputs(op, feeds)
        step[name] = Operation(
            _task_of(op, tasks),
            has_effect=_has_effect(op),
            stays=op.type in _STATES,
            # A merge waits for one of its inputs, and it is open for which.
            inputs=tuple(control if op.type in _MERGES else data + control),
            is_opaque=_is_opaque(op),
        )
        left += data + control
    return step


def _output(output: Any) -> Output:
    return TF_OperationName(output.oper), output.index


def _fed(name: str, index: int) -> str:
    # No operation has such a name.
    return f"{name}:{index} (fed)"


def _inputs(op: Any, feeds: Collection[Output]) -> tuple[list[str], list[str]]:
    """The names of what an operation takes values from, and of what else it waits for."""
    data = [
        _fed(*output) if (output := (each.op.name, each.value_index)) in feeds else each.op.name
        for each in op.inputs
    ]
    # A fed placeholder does not run at all; another operation whose output is fed may run.
    control = [
        _fed(each.name, 0) if each.type in _PLACEHOLDERS and (each.name, 0) in feeds else each.name
        for each in op.control_inputs
    ]
    return data, control


def _has_effect(op: Any) -> bool:
    if op.type in _HARMLESS:
        return False
    return bool(op.op_def.is_stateful or any(each.is_ref for each in op.op_def.input_arg))


def _is_opaque(op: Any) -> bool:
    """Whether an operation calls functions, or is a call of one."""
    return op_def_registry.get(op.type) is None or any(
        each.type in {"func", "list(func)"} for each in op.op_def.attr
    )


def _task_of(op: Any, tasks: Sequence[Task]) -> str | None:
    """The only task on which an operation can run; None if there are several."""
    groups = (group.decode().removeprefix("loc:@") for group in op.colocation_groups())
    near = [op, *map(op.graph.get_operation_by_name, groups)]
    # An operation on a state runs where the state is held; what only reads a reference need not.
    changes = any(each.is_ref for each in op.op_def.input_arg)
    near += [
        each.op
        for each in op.inputs
        if each.dtype == tf.resource or (changes and each.dtype._is_ref_dtype)
    ]
    found = {place for each in near if (place := _placed(each.device, tasks))}
    return found.pop() if len(found) == 1 else None


def _placed(device: str, tasks: Sequence[Task]) -> str | None:
    """The only task that a device string fits, which may name none, a job, or a job and a task."""
    named = re.search(r"/job:(\w+)", device), re.search(r"/task:(\d+)", device)
    fitting = [
        task
        for task in tasks
        if all(part is None or part[1] == own for part, own in zip(named, task, strict=True))
    ]
    return "-".join(fitting[0]) if len(fitting) == 1 else None
