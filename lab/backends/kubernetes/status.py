"""What the state of a pod means: its task, whether its agent runs, and why it does not."""

from __future__ import annotations

from typing import Final

from lab.backends.kubernetes.pods import INDEX, JOB, TASK, Object
from lab.base.text import short

_NEVER: Final = {
    *("ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName"),
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
}
"""Reasons for waiting that do not go away by themselves."""

_ENDED: Final = {"Failed", "Succeeded"}


def task_of(pod: Object) -> str:
    """Return the task of a pod; "" if it has none."""
    labels = pod["metadata"].get("labels", {})
    job = labels.get(JOB, "")
    return str(labels.get(TASK) or (f"{job}-{labels[INDEX]}" if job and INDEX in labels else ""))


def is_running(pod: Object | None) -> bool:
    """Whether there is a pod, which runs and is not being deleted."""
    return pod is not None and _phase(pod) == "Running" and not is_deleted(pod)


def is_ready(pod: Object) -> bool:
    """Whether a pod runs, and its program has started; its node may not answer for a while."""
    return is_running(pod) and container(pod).get("started") is True


def was_ended(pod: Object) -> bool:
    """Whether Kubernetes has ended a pod, and its program has not failed."""
    return _phase(pod) == "Succeeded" or (_phase(pod) == "Failed" and "reason" in pod["status"])


def is_deleted(pod: Object) -> bool:
    """Whether Kubernetes deletes a pod; its program may have time to end."""
    return "deletionTimestamp" in pod["metadata"]


def is_ended_by_kubernetes(pod: Object) -> bool:
    """Whether Kubernetes deletes a pod, or has evicted it."""
    return is_deleted(pod) or (_phase(pod) == "Failed" and "reason" in pod["status"])


def is_waiting(pod: Object) -> bool:
    """Whether a pod waits for a node."""
    return _phase(pod) == "Pending" and "nodeName" not in pod["spec"]


def failure(pod: Object) -> str | None:
    """Return why a pod will never run; None if it may."""
    reason = _state(pod).get("waiting", {}).get("reason")
    return detail(pod) if _phase(pod) in _ENDED or reason in _NEVER else None


def detail(pod: Object) -> str:
    """Return the state of a pod in words: phase, node, and the cause that Kubernetes names."""
    status = pod.get("status", {})
    phase = "Terminating" if is_deleted(pod) else _phase(pod)
    node = pod["spec"].get("nodeName")
    state = _state(pod)
    waiting, ended = state.get("waiting", {}), state.get("terminated", {})
    conditions: list[Object] = [item for item in status.get("conditions", []) if "message" in item]
    unfit = [item["message"] for item in conditions if item.get("reason") == "Unschedulable"]
    code = f"exit code {ended['exitCode']}" if ended.get("exitCode") else ""
    causes = [status.get("reason"), status.get("message")]
    causes += [waiting.get("reason"), waiting.get("message"), ended.get("reason"), code]
    causes += unfit
    # Since Kubernetes 1.26: an eviction, a drained node, a pod of higher priority.
    for condition in conditions:
        if condition.get("type") == "DisruptionTarget":
            causes += [condition["reason"], condition["message"]]
    named = [cause for cause in dict.fromkeys(causes) if cause and cause != "Completed"]
    where = f"{phase} on {node}" if node else phase
    return short(": ".join([where, *named]), 300)


def _phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def container(pod: Object) -> Object:
    """Return the status of a pod's container; {} if it has none yet."""
    statuses: list[Object] = pod.get("status", {}).get("containerStatuses", [])
    return statuses[0] if statuses else {}


def _state(pod: Object) -> Object:
    state: Object = container(pod).get("state", {})
    return state
