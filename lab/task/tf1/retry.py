"""Run a step again that TensorFlow refused by mistake, if that step has changed nothing.

The module wraps the one method that runs every step: that of `tf.Session.run`, of the sessions of
Supervisor and MonitoredTrainingSession, and of queue runners. It examines the graph only after a
refusal.
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
"""The number of refusals in a row after which the program ends."""

_RETRIED: Final = "TensorFlow refused a step by mistake; it runs again"
_HINT: Final = "start the run again; docs/listings.md lists the programs that this can stop"

_STATES: Final = frozenset(
    {
        *("Variable", "VariableV2", "VarHandleOp"),
        *("FIFOQueueV2", "PaddingFIFOQueueV2", "PriorityQueueV2", "RandomShuffleQueueV2"),
        *("ConditionalAccumulator", "ResourceConditionalAccumulator"),
        "SparseConditionalAccumulator",
        "Timestamp",
    }
)
"""Types of operations with a state, and the clock. They have no effect, and are never removed."""

_HARMLESS: Final = frozenset(
    {
        *_STATES,
        *("ReadVariableOp", "ResourceGather", "ResourceGatherNd"),
        *("IsVariableInitialized", "VarIsInitializedOp"),
        *("QueueSizeV2", "QueueIsClosedV2", "Assert"),
        *("AccumulatorNumAccumulated", "ResourceAccumulatorNumAccumulated"),
        # A refused step may have drawn random numbers; they are lost.
        *("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal"),
        *("ParameterizedTruncatedNormal", "RandomGammaV2", "RandomPoissonV2"),
        *("RandomShuffle", "Multinomial"),
    }
)
"""Types of stateful operations that may run once more than the program requested."""

_PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2"})
_MERGES: Final = frozenset({"Merge", "RefMerge"})
_DEVICE: Final = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)/")

Output = tuple[str, int]
"""The name of an operation, and the index of one of its outputs."""

Task = tuple[str, str]
"""A job and an index."""


def retry_refused_steps(notify: Callable[[str], None], give_up: Callable[[str], None]) -> None:
    """Make every session of this process run a refused step again if it has changed nothing.

    Args:
        notify: Receives a line for each step that runs again.
        give_up: Ends the program; receives a line with the reason. It is called for a step that may
            have changed something, or that TensorFlow refuses repeatedly.
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
                # TensorFlow cancels the parts on other tasks; their error may arrive first.
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
    """Describe the operations that a step runs, and its fed values.

    Args:
        graph: The session's graph.
        fetches: The outputs that the step returns.
        targets: Names of further operations that the step runs.
        feeds: The outputs that fed values replace.
        devices: Full names of the session's devices. The first belongs to the task to which the
            session connects; that task gets the fed values and the fetched ones.
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
            # A merge waits for only one of its inputs, and it is unknown for which.
            inputs=tuple(control if op.type in _MERGES else data + control),
            is_opaque=_is_opaque(op),
        )
        left += data + control
    return step


def _output(output: Any) -> Output:
    return TF_OperationName(output.oper), output.index


def _fed(name: str, index: int) -> str:
    # An operation's name cannot contain a space.
    return f"{name}:{index} (fed)"


def _inputs(op: Any, feeds: Collection[Output]) -> tuple[list[str], list[str]]:
    """Return the names of an operation's data inputs, and those of its control inputs."""
    data = [
        _fed(*output) if (output := (each.op.name, each.value_index)) in feeds else each.op.name
        for each in op.inputs
    ]
    # A fed placeholder does not run; another operation with a fed output may run.
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
    """Whether an operation calls functions, or is itself a function call."""
    return op_def_registry.get(op.type) is None or any(
        each.type in {"func", "list(func)"} for each in op.op_def.attr
    )


def _task_of(op: Any, tasks: Sequence[Task]) -> str | None:
    """Return the only task on which an operation can run; None if there are several."""
    groups = (group.decode().removeprefix("loc:@") for group in op.colocation_groups())
    near = [op, *map(op.graph.get_operation_by_name, groups)]
    # An operation that changes a state runs on the state's task; a reader of a reference need not.
    changes = any(each.is_ref for each in op.op_def.input_arg)
    near += [
        each.op
        for each in op.inputs
        if each.dtype == tf.resource or (changes and each.dtype._is_ref_dtype)
    ]
    found = {place for each in near if (place := _placed(each.device, tasks))}
    return found.pop() if len(found) == 1 else None


def _placed(device: str, tasks: Sequence[Task]) -> str | None:
    """Return the only task that fits a device string, which may lack the task, or job and task."""
    named = re.search(r"/job:(\w+)", device), re.search(r"/task:(\d+)", device)
    fitting = [
        task
        for task in tasks
        if all(part is None or part[1] == own for part, own in zip(named, task, strict=True))
    ]
    return "-".join(fitting[0]) if len(fitting) == 1 else None
