"""The files on the run volume: the only channel between the client, the agents and the collector.

These files exist::

    requests/<run_id>.json        a request: what every task agent must start
    requests/<run_id>.collected   the run store into which the whole run was collected
    agents/<task>.json            an agent's data; its modification time is the heartbeat
    agents/<task>.lock            locked by the agent while it runs
    <run_id>/tasks/<task>.jsonl   records, one JSON object per line    (appended by the agent)
    <run_id>/logs/<task>.log      all other lines, unchanged           (appended by the agent)
    <run_id>/status/<task>.json   the task's state                      (replaced atomically)
    <run_id>/cancel.json          requests that every agent end the run (created once)
    <run_id>/kill.json            the same, at once                     (created once)
    <run_id>/start/<task>         signals the task's program to train  (created by its agent)
    <run_id>/start/.rendezvous    Horovod's rendezvous                 (written by rank 0's)
    <run_id>/faults/<n>.json      a fault that the user requested during the run
    <run_id>/program/             the user's own program and its modules (created by the client)
    <run_id>/model/, checkpoints/, tb/<task>/                           (created by lab's programs)
    <run_id>/files/               the working directory of all programs, with their output files
    incoming/<run_id>/            program/, files/ and checkpoints/ before the request exists
"""

from lab.protocol.volume.layout import Chunk, Volume
from lab.protocol.volume.run_spec import Request, RunSpec
from lab.protocol.volume.states import TaskStatus

__all__ = ["Chunk", "Request", "RunSpec", "TaskStatus", "Volume"]
