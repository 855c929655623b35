"""The private Kubernetes itself: a Job of the lab's image runs to its end."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.site import Site

PATIENCE_S = 120.0


def job(name: str, image: str, *command: str, **pod: Any) -> dict[str, Any]:
    """A Job of one pod with these fields."""
    container = {"name": "main", "image": image, "command": [*command]}
    spec = {"restartPolicy": "Never", "containers": [container], **pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"spec": spec}},
    }


def test_a_job_of_the_image_runs_to_its_end_and_its_log_is_read(site: Site, image: str) -> None:
    site.apply(job("hello", image, "python", "-c", "import tensorflow; print('hello')"))
    assert site.ended("hello", PATIENCE_S) == "Complete"
    assert site.kubectl("logs", "job/hello").splitlines()[-1] == "hello"


def test_a_program_that_fails_fails_its_job(site: Site, image: str) -> None:
    site.apply(job("fails", image, "python", "-c", "raise SystemExit(3)"))
    assert site.ended("fails", PATIENCE_S) == "Failed"


NAMED = """\
import socket, time
until = time.monotonic() + 60
while True:
    try:
        print(socket.gethostbyname("other.tasks"))
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.2)
"""


def test_a_pod_finds_another_by_the_name_of_its_headless_service(site: Site, image: str) -> None:
    site.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "tasks"},
            "spec": {"clusterIP": "None", "selector": {"in": "tasks"}},
        }
    )
    other = job("other", image, "sleep", "60", hostname="other", subdomain="tasks")
    other["spec"]["template"]["metadata"] = {"labels": {"in": "tasks"}}
    site.apply(other, job("asks", image, "python", "-c", NAMED))
    assert site.ended("asks", PATIENCE_S) == "Complete"
    (pod,) = site.get("pods", selector="job-name=other")
    assert site.kubectl("logs", "job/asks").strip() == pod["status"]["podIP"]
    site.kubectl("delete", "job", "other")
