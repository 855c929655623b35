"""The files by which the client, the task agents and the collector talk to each other.

The run volume is the only channel::

    requests/<run_id>.json        a request: what every task agent is to start
    requests/<run_id>.collected   the directory of runs into which all of it was collected
    agents/<task>.json            an agent's presence; its modification time is the heartbeat
    agents/<task>.lock            locked by the agent as long as it lives
    <run_id>/tasks/<task>.jsonl   records, one JSON object a line      (appended by the agent)
    <run_id>/logs/<task>.log      every other line, verbatim            (appended by the agent)
    <run_id>/status/<task>.json   the task's state                      (replaced atomically)
    <run_id>/cancel.json          asks every agent to end the run       (created once)
    <run_id>/kill.json            the same, at once                     (created once)
    <run_id>/start/<task>         tells the task's program to train     (created by its agent)
    <run_id>/faults/<n>.json      a fault that was asked for during the run
    <run_id>/program/             a program of one's own, and its modules (by the helper)
    <run_id>/model/, checkpoints/, tb/<task>/                           (by lab's programs)
    <run_id>/files/               the working directory of all programs, with what they write there
    incoming/<run_id>/            program/, files/ and checkpoints/ before the request is made
"""

from lab.task.protocol.names import (
    CLUSTER_FLAGS,
    DATA_DIR,
    LOST_AFTER_S,
    LOST_CONTACT,
    READY_S,
    RUN_ID,
    STALL_S,
    TASK,
    ClusterSpec,
    chief_of,
    new_run_id,
    task_names,
)
from lab.task.protocol.request import Request
from lab.task.protocol.run_spec import RunSpec, TaskProgram, nested
from lab.task.protocol.status import Attempt, TaskStatus
from lab.task.protocol.volume import Chunk, Volume

__all__ = [
    "CLUSTER_FLAGS",
    "DATA_DIR",
    "LOST_AFTER_S",
    "LOST_CONTACT",
    "READY_S",
    "RUN_ID",
    "STALL_S",
    "TASK",
    "Attempt",
    "Chunk",
    "ClusterSpec",
    "Request",
    "RunSpec",
    "TaskProgram",
    "TaskStatus",
    "Volume",
    "chief_of",
    "nested",
    "new_run_id",
    "task_names",
]
