"""Tasks that never talked to another task: who they are, and what their program seems to lack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lab.store.directory import RunDir, read_statuses
from lab.store.run_info import RunInfo
from lab.volume.run_spec import module_files
from lab.volume.states import NEVER_TALKED, never_talked

_STARTS_RANKS: Final = re.compile(r"\bmp\.spawn\(|multiprocessing\.spawn\b|start_processes\(")
_SETS_CLUSTER: Final = re.compile(r"environ(?:\[|\.setdefault\()[\"']TF_CONFIG[\"'](?:\] *=|,)")
_PLACE_FLAG: Final = re.compile(
    r"[\"'](--(?:world[-_]size|num[-_]processes|nnodes|(?:local|node)[-_]rank|rank|process[-_]id"
    r"|coordinator[-_a-z]*|master[-_]addr|init[-_]method|dist[-_](?:url|backend)))[\"']"
)
_FORMS_CLUSTER: Final = {
    "torch": (r"init_process_group|init_device_mesh", "never calls init_process_group"),
    "jax": (r"distributed\.initialize", "never calls jax.distributed.initialize"),
    "tensorflow": (r"ClusterSpec|Strategy|TF_CONFIG|RunConfig|hvd", "builds no cluster"),
}
"""Framework to how its programs find their other tasks, and what to say without it."""


def advice(run: RunDir, info: RunInfo) -> str:
    """Return what to change in the program of a run whose tasks never talked to each other."""
    source = "\n".join(_sources(run, info))
    expression, lack = _FORMS_CLUSTER[info.spec.framework]
    flags = dict.fromkeys(_PLACE_FLAG.findall(source))
    unset = [flag for flag in flags if not any(flag in text for text in info.spec.args)]
    if _STARTS_RANKS.search(source):
        advice = "it starts its ranks itself: run it on one task, as in clusters/single.yaml"
    elif _SETS_CLUSTER.search(source):
        advice = "it sets a TF_CONFIG of its own: leave that to lab"
    elif unset:
        advice = f"give it {' and '.join(unset[:2])} after --, with placeholders such as {{rank}}"
    elif info.spec.own and not re.search(expression, source):
        advice = f"it {lack}: run it on one task, as in clusters/single.yaml"
    else:
        advice = f"see what its tasks wait for in {run.path}"
    return f"{advice}; if each may train alone, write `needs: nothing` into the config"


def _sources(run: RunDir, info: RunInfo) -> Iterator[str]:
    spec = info.spec
    for program in {*spec.programs.values()} or {spec.program}:
        for name in module_files(program) if spec.module else (program,):
            path = (run.program / name).resolve()
            if path.is_relative_to(run.program.resolve()) and path.is_file():
                yield path.read_text("utf-8", "replace")


def contact_notice(run: RunDir, info: RunInfo) -> str:
    """Return the notice about tasks of a successful run that never talked to another one, or ""."""
    statuses = read_statuses(run, info, skip_damaged=True)
    if never_talked(info, statuses):
        return f"warning: {NEVER_TALKED}"
    trained = [status for status in statuses.values() if status.global_step is not None]
    silent = [status.task for status in trained if status.talked is False]
    if not info.spec.must_talk or not any(status.talked for status in statuses.values()):
        return ""
    names = ", ".join(silent)
    return f"warning: {names} never exchanged data with another task" if silent else ""
