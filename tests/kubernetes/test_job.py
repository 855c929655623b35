"""The private Kubernetes itself: a Job of the lab's image runs to its end."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.site import Site

PATIENCE_S = 120.0


def start(site: Site, name: str, image: str, *command: str, **pod: Any) -> None:
    """Start a Job of one pod with these fields, labelled with its name."""
    container = {"name": "main", "image": image, "command": [*command]}
    template = {
        "metadata": {"labels": {"in": name}},
        "spec": {"restartPolicy": "Never", "containers": [container], **pod},
    }
    site.apply("Job", name, api="batch/v1", spec={"backoffLimit": 0, "template": template})


def test_a_job_of_the_image_runs_to_its_end_and_its_log_is_read(site: Site, image: str) -> None:
    start(site, "hello", image, "python", "-c", "import tensorflow; print('hello')")
    assert site.ended("hello", PATIENCE_S) == "Complete"
    assert site.kubectl("logs", "job/hello").splitlines()[-1] == "hello"


def test_a_program_that_fails_fails_its_job(site: Site, image: str) -> None:
    start(site, "fails", image, "python", "-c", "raise SystemExit(3)")
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
    site.apply("Service", "tasks", spec={"clusterIP": "None", "selector": {"in": "other"}})
    start(site, "other", image, "sleep", "60", hostname="other", subdomain="tasks")
    start(site, "asks", image, "python", "-c", NAMED)
    assert site.ended("asks", PATIENCE_S) == "Complete"
    (pod,) = site.get("pods", selector="job-name=other")
    assert site.kubectl("logs", "job/asks").strip() == pod["status"]["podIP"]
    site.kubectl("delete", "job", "other")
