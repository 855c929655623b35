"""The table of all checks, by area.

To add a check, write a function that looks up a fact and add the fact to `host.py`. Then write a
judge, a function whose parameters are facts, and add a row here.
"""

# ruff: noqa: PLW0108  (the parameter of a lambda is the name of the fact for a shared judge)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lab.doctor import data, engine, gpu_support, gpus, network, python, resources
from lab.doctor.model import Need
from lab.doctor.runner import Check

ALL, LOCAL, COMPOSE, GPUS = Need.EVERYTHING, Need.LOCAL, Need.COMPOSE, Need.GPUS
ENGINE: Final = ("engine",)

CHECKS: Final[Mapping[str, Sequence[Check]]] = {
    "Python": (
        Check("version", ALL, python.judge_version),
        Check("packages", ALL, python.judge_packages, vital=True),
        Check("TensorFlow", LOCAL, python.judge_tensorflow),
    ),
    "data": (
        Check("config", ALL, data.judge_config),
        Check("MNIST", ALL, data.judge_dataset),
        Check("runs directory", ALL, lambda runs: data.judge_writable(runs)),
        Check("state directory", ALL, lambda state: data.judge_writable(state)),
        Check("local environments", LOCAL, data.judge_environments),
    ),
    "resources": (
        Check("CPUs", ALL, resources.judge_cpus),
        Check("memory", ALL, resources.judge_memory),
        Check("room for runs", ALL, lambda runs: data.judge_room(runs)),
        Check("room for state", ALL, lambda state: data.judge_room(state)),
        Check("inotify", ALL, resources.judge_inotify),
        Check("open files", LOCAL, resources.judge_open_files),
        Check("threads", LOCAL, resources.judge_threads),
    ),
    "network": (
        Check("namespaces", LOCAL, network.judge_namespaces),
        Check("ports", LOCAL, network.judge_ports),
        Check("addresses", LOCAL, network.judge_addresses),
        Check("proxies", ALL, network.judge_proxies),
    ),
    "Docker": (
        Check("command", COMPOSE, engine.judge_command),
        Check("compose", COMPOSE, engine.judge_compose, ["command"], engine.judge_no_compose),
        Check(
            "engine",
            COMPOSE,
            engine.judge_engine,
            ["command"],
            engine.judge_no_engine,
            without="not checked without an engine",
        ),
        Check("storage driver", COMPOSE, engine.judge_storage, ENGINE),
        Check("limits", COMPOSE, engine.judge_limits, ENGINE),
        Check("image", COMPOSE, engine.judge_image, ["engine", "config"], engine.judge_no_image),
        Check(
            "buildx",
            COMPOSE,
            engine.judge_buildx,
            ["compose", "engine"],
            engine.judge_no_builder,
        ),
        Check("disk", COMPOSE, engine.judge_disk, ENGINE),
        Check("host", COMPOSE, engine.judge_host_access, ENGINE),
        Check("address pools", COMPOSE, engine.judge_address_pools, ENGINE),
        Check("environments", COMPOSE, engine.judge_environments, ENGINE),
    ),
    "GPUs": (
        Check(
            "driver",
            GPUS,
            gpus.judge_driver,
            without="not checked without a driver",
        ),
        Check("GPUs", GPUS, gpus.judge_gpus, ["driver"]),
        Check("MIG", GPUS, gpus.judge_mig, ["driver"]),
        Check("CUDA", GPUS, gpus.judge_cuda, ["GPUs"]),
        Check("TensorFlow on GPUs", GPUS, gpu_support.judge_support, ["GPUs"]),
        Check("local backend", GPUS, gpus.judge_local_backend, ["GPUs"]),
        Check("container toolkit", GPUS, gpus.judge_toolkit, ["GPUs", "engine"]),
        Check("CDI", GPUS, gpus.judge_cdi, ["GPUs", "engine"]),
        Check("daemon-reload", GPUS, gpus.judge_daemon_reload, ["container toolkit"]),
        Check("trial container", GPUS, gpus.judge_trial, ["container toolkit"]),
    ),
}
