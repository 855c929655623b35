"""Recorded error messages of the engine and of compose, each with its hint."""

from __future__ import annotations

import pytest

from lab.backends.compose.error_hints import HINTS, explain

# Their real messages (Engine 20.10.24 and 28, compose 2.40.3 and 5.6.1), shortened where long.
RECORDED = [
    (
        " Image lab:cpu Building \ncompose build requires buildx 0.17.0 or later",
        "compose builds only with 0.17.0 or later",
        "DOCKER_BUILDKIT=0",
    ),
    (
        "compose build requires buildx 0.17 or later",
        "compose builds only with 0.17 or later",
        "docker-buildx-plugin",
    ),
    (
        'Error response from daemon: could not select device driver "nvidia" with capabilities:'
        " [[gpu compute utility]]",
        "NVIDIA GPUs",
        "--gpus none",
    ),
    (
        'Error response from daemon: could not select device driver "cdi" with capabilities:'
        " [[gpu]]",
        "does not request GPUs by CDI",
        "--gpus-by nvidia",
    ),
    (
        "Error response from daemon: CDI device injection failed:"
        " unresolvable CDI devices nvidia.com/gpu=GPU-1234",
        "this host has no GPU nvidia.com/gpu=GPU-1234",
        "nvidia-ctk cdi list",
    ),
    (
        "Error response from daemon: failed to create task for container: OCI runtime create"
        " failed: nvidia-container-cli: device error: GPU-1234: unknown device: unknown",
        "this host has no GPU GPU-1234",
        "--gpus uuid",
    ),
    (
        "Error response from daemon: Requested CPUs are not available - requested 4-7, available:"
        " 0-1",
        "no CPUs 4-7",
        "render it again here",
    ),
    (
        "permission denied while trying to connect to the Docker daemon socket at"
        " unix:///var/run/docker.sock: Get ...: dial unix /var/run/docker.sock: connect:"
        " permission denied",
        "no permission",
        "usermod -aG docker",
    ),
    (
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon"
        " running?",
        "no Docker engine answers",
        "--backend local",
    ),
    (
        "failed to create network mnist_cluster: Error response from daemon: could not find an"
        " available, non-overlapping IPv4 address pool among the defaults to assign to the network",
        "no address range left",
        "docker network prune",
    ),
    (
        "Error response from daemon: driver failed programming external connectivity on endpoint"
        " x: Bind for 127.0.0.1:6006 failed: port is already allocated",
        "127.0.0.1:6006 is in use",
        "another port",
    ),
    (
        'Error response from daemon: invalid mount config for type "bind": bind source path does'
        " not exist: /home/ada/lab/data",
        "/home/ada/lab/data is missing",
        "create it",
    ),
    (
        "#6 12.3 ERROR: Could not install packages due to an OSError: [Errno 28] No space left on"
        " device",
        "the disk is full",
        "docker image prune",
    ),
    (
        "#6 2.955 ERROR: Could not find a version that satisfies the requirement nonesuch==1 (from"
        " versions: none)",
        "pip finds no nonesuch==1",
        "LAB_TENSORFLOW",
    ),
    (
        "#7 12.91 ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you"
        " have updated the package versions, please update the hashes. Otherwise, examine the"
        " package contents carefully; someone may have tampered with them.\n"
        "#7 12.91     six==1.17.0 from https://index.example/six-1.17.0-py2.py3-none-any.whl (from"
        " -r /opt/requirements.txt (line 26)):\n"
        "#7 12.91         Expected sha256 0000\n"
        "#7 12.91              Got        4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970",
        "the downloaded six==1.17.0 has another hash than the one in requirements/",
        "build again",
    ),
    (
        'failed to solve: failed to compute cache key: "/requirements/image-cpu.txt" not found:'
        " not found",
        "requirements/image-cpu.txt is missing",
        "restore it",
    ),
    (
        "COPY failed: file not found in build context or excluded by .dockerignore: stat"
        " requirements/image-cpu.txt: file does not exist",
        "requirements/image-cpu.txt is missing",
        "restore it",
    ),
    (
        'failed to solve: failed to do request: Head "https://registry.example/v2/library/python/'
        'manifests/3.11": dial tcp: lookup registry.example: no such host',
        "base image cannot be fetched",
        "tools/base-image.sh",
    ),
    (
        'Step 1/9 : FROM python:3.11\nGet "https://registry.example/v2/": dial tcp: lookup'
        " registry.example: no such host",
        "base image cannot be fetched",
        "tools/base-image.sh",
    ),
    (
        "failed to solve: failed to read dockerfile: open Dockerfile.gpu: no such file or"
        " directory",
        "Dockerfile.gpu is missing",
        "project's directory",
    ),
    (
        "#7 40.1 npm error code ECONNREFUSED\n#7 40.1 npm error syscall connect",
        "npm cannot install the proxy of a class: ECONNREFUSED",
        "LAB_BUILD_NETWORK=host",
    ),
    ("Error response from daemon: No such image: lab:cpu", "no image lab:cpu", "lab build"),
    (
        "unknown shorthand flag: 'p' in -p\nSee 'docker --help'.",
        "no compose plugin",
        "docker-compose-plugin",
    ),
    (
        "Error response from daemon: Pool overlaps with other one on this address space",
        "in use by another network",
        "docker network ls",
    ),
]


@pytest.mark.parametrize(("output", "what", "mend"), RECORDED)
def test_each_recorded_error_has_cause_and_hint(output: str, what: str, mend: str) -> None:
    error = explain("booting", output.splitlines())
    assert what in error.what
    assert error.what.startswith("booting: ")
    assert mend in error.fix
    assert "\n" not in str(error)


def test_every_error_pattern_is_tested() -> None:
    matched = {
        next(each for each in HINTS if each.pattern.search(output)) for output, _, _ in RECORDED
    }
    assert matched == set(HINTS)


def test_the_cause_precedes_its_effects() -> None:
    lines = [
        "#6 9.1 OSError: [Errno 28] No space left on device",
        "#6 9.2 ERROR: Could not find a version that satisfies the requirement keras",
        "failed to solve: executor failed running [/bin/bash -c …]: exit code: 1",
    ]
    assert "disk is full" in explain("building the image", lines).what


def test_an_unknown_error_is_quoted_and_safe_to_show() -> None:
    error = explain("booting", ["first", "\x1b[31mthe flux capacitor\x07 broke", "----", ""])
    assert error.what == r"booting: \x1b[31mthe flux capacitor\x07 broke"
    found = explain(
        "trying", ["docker: no nvidia-smi", "Run 'docker run --help' for more information"]
    )
    assert (found.what, found.fix) == ("trying: docker: no nvidia-smi", "")
    assert str(explain("booting", [])) == "booting: it failed without output"


def test_engine_errors_do_not_match_labs_own_patterns() -> None:
    error = explain("booting", ["Error response from daemon: No such image: {1}{what}"])
    assert error.what == "booting: there is no image {1}{what}"
