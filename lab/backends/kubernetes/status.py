"""What the state of a pod means: its task, whether its agent runs, and why it does not."""

from __future__ import annotations

from typing import Final

from lab.backends.kubernetes.pods import INDEX, JOB, TASK, Object
from lab.text import short

_NEVER: Final = {
    *("ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName"),
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
}
"""Reasons for which a container waits, and which do not pass by themselves."""

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
    return is_running(pod) and _container(pod).get("started") is True


def was_ended(pod: Object) -> bool:
    """Whether Kubernetes has ended a pod, and its program has not failed."""
    return _phase(pod) == "Succeeded" or (_phase(pod) == "Failed" and "reason" in pod["status"])


def is_deleted(pod: Object) -> bool:
    """Whether Kubernetes deletes a pod; its program may have time to end."""
    return "deletionTimestamp" in pod["metadata"]


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
    known: list[Object] = [each for each in status.get("conditions", []) if "message" in each]
    unfit = [each for each in known if each.get("reason") == "Unschedulable"]
    code = f"exit code {ended['exitCode']}" if ended.get("exitCode") else ""
    causes = [status.get("reason"), status.get("message")]
    causes += [waiting.get("reason"), waiting.get("message"), ended.get("reason"), code]
    causes += [each["message"] for each in unfit]
    # Since Kubernetes 1.26: an eviction, a drained node, a pod of higher priority.
    disrupted = [each for each in known if each.get("type") == "DisruptionTarget"]
    causes += [each[part] for each in disrupted for part in ("reason", "message")]
    named = [cause for cause in dict.fromkeys(causes) if cause and cause != "Completed"]
    where = f"{phase} on {node}" if node else phase
    return short(": ".join([where, *named]), 300)


def _phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def _container(pod: Object) -> Object:
    """The status of a pod's container."""
    found: list[Object] = pod.get("status", {}).get("containerStatuses", [])
    return found[0] if found else {}


def _state(pod: Object) -> Object:
    state: Object = _container(pod).get("state", {})
    return state
