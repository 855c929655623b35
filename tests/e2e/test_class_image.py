"""The image of a class in hardened containers: a seat, and the proxy."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from lab.backends.compose.client import Engine
from lab.classroom.image import ensure_image
from tests.support.agents import wait_for
from tests.support.engine import ROOT

pytestmark = pytest.mark.engine

HARDENED = (
    *("--init", "--user", "1000:1000", "--cap-drop", "ALL", "--read-only", "--tmpfs", "/tmp"),
    *("--security-opt", "no-new-privileges", "--pids-limit", "4096", "--network", "none"),
)
SEAT = ("python", "-P", "-m", "lab.classroom.seat")

NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": "cell-0",
            "metadata": {},
            "outputs": [],
            "source": "from common import at_root, plt\nat_root()\nplt.plot([1, 2]);",
        }
    ],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}

ROUTES = """
import urllib.request
asked = urllib.request.Request(
    "http://127.0.0.1:8001/api/routes", headers={"Authorization": "token secret"}
)
print(urllib.request.urlopen(asked).read().decode())
"""


@pytest.fixture
def volume(class_image: str) -> Iterator[str]:
    """A new volume for the home directory of a seat."""
    name = "lab-e2e-seat"
    docker("volume", "create", name)
    yield name
    docker("volume", "rm", "--force", name)


def docker(*arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert code is None or done.returncode == code, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def in_seat(image: str, volume: str, *command: str, code: int = 0, **variables: str) -> str:
    """The output of a command in a seat's container, standard error last."""
    given = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    mount = f"type=volume,source={volume},target=/home/student"
    options = ("--rm", *HARDENED, "--mount", mount, "--workdir", "/home/student")
    done = docker("run", *options, *given, image, *command, code=code)
    return done.stdout + done.stderr


def test_a_start_fills_the_home_directory_and_keeps_what_is_there(
    class_image: str, volume: str
) -> None:
    def start() -> str:
        return in_seat(
            *(class_image, volume, *SEAT, "--version"),
            LAB_LESSONS="tour,async",
            LAB_CLUSTER_CONFIG="name: ada\n",
        )

    assert start() == "6.1.1\n"  # jupyterhub-singleuser, and no complaint
    listing = "ls notebooks/*.ipynb; cat cluster.yaml; stat --format %U scripts/hello.py"
    lines = in_seat(class_image, volume, "sh", "-c", listing).splitlines()
    notebooks = ["notebooks/00_tour.ipynb", "notebooks/01_async.ipynb"]
    assert lines == [*notebooks, "name: ada", "student"]
    in_seat(class_image, volume, "sh", "-c", "echo mine | tee cluster.yaml notebooks/00_tour.ipynb")
    start()
    kept = in_seat(class_image, volume, "cat", "cluster.yaml", "notebooks/00_tour.ipynb")
    assert kept == "mine\nmine\n"


def test_lab_trains_in_a_seat(class_image: str, volume: str) -> None:
    in_seat(class_image, volume, *SEAT, "--version")
    script = "lab run async --epochs 1 --backend local && lab report $(ls runs) && lab runs"
    output = in_seat(class_image, volume, "sh", "-c", script)
    (notice,) = [line for line in output.splitlines() if "namespaces" in line]
    assert notice.startswith(
        "local: no namespaces (unshare: unshare failed: Operation not permitte"
    )
    assert "report.html" in output
    assert "1,650" in output  # all steps


def test_lab_is_found_in_a_terminal_of_jupyterlab(class_image: str, volume: str) -> None:
    found = in_seat(class_image, volume, "sh", "-c", '"$SHELL" -l -c "command -v lab python"')
    assert found.splitlines() == ["/opt/venv/bin/lab", "/opt/venv/bin/python"]


def test_a_notebook_runs_in_a_seat(class_image: str, volume: str) -> None:
    in_seat(class_image, volume, *SEAT, "--version")
    script = "printenv NOTEBOOK > notebooks/small.ipynb && jupyter execute notebooks/small.ipynb"
    output = in_seat(class_image, volume, "sh", "-c", script, NOTEBOOK=json.dumps(NOTEBOOK))
    assert "Traceback" not in output


def test_a_seat_has_no_rights(class_image: str, volume: str) -> None:
    status = in_seat(class_image, volume, "cat", "/proc/self/status")
    values = dict(line.split(":\t") for line in status.splitlines())
    assert int(values["CapEff"], 16) == int(values["CapBnd"], 16) == 0
    assert (values["NoNewPrivs"], values["Seccomp"]) == ("1", "2")
    assert set(values["Uid"].split()) == {"1000"}
    # Each user may write there, so that only the mount forbids it.
    assert "Read-only file system" in in_seat(class_image, volume, "touch", "/var/tmp/x", code=1)
    assert in_seat(class_image, volume, "touch", "/tmp/x", "x") == ""


def test_the_proxy_starts(class_image: str) -> None:
    name = "lab-e2e-proxy"
    command = ("configurable-http-proxy", "--ip", "127.0.0.1", "--api-ip", "127.0.0.1")
    try:
        token = ("--env", "CONFIGPROXY_AUTH_TOKEN=secret")
        docker("run", "--detach", "--name", name, *HARDENED, *token, class_image, *command)
        ask = ("exec", name, "python", "-c", ROUTES)
        wait_for(lambda: docker(*ask, code=None).stdout == "{}\n", "the proxy answers")
    finally:
        docker("rm", "--force", name)


def test_an_image_of_these_sources_is_not_built_again(class_image: str) -> None:
    lines: list[str] = []
    assert ensure_image(Engine(), gpus=False, root=ROOT, notify=lines.append) == class_image
    assert lines == []
