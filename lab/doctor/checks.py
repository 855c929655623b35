"""The table of all checks, by area.

To add a check, write a function that looks up a fact and add the fact to `host.py`. Then write a
judge, a function whose parameters are facts, and add a row here.
"""

# ruff: noqa: PLW0108  (the parameter of a lambda is the name of the fact for a shared judge)

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from lab.doctor import containers, data, engine, gpus, images, network, python, resources
from lab.doctor.host import Host
from lab.doctor.model import Need, Outcome, skipped, warning
from lab.errors import LabError
from lab.text import short


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table.

    Attributes:
        name: Its unique name.
        needed_for: The purpose that needs the check to pass.
        judge: Returns the outcome, and changes nothing. Its parameters are facts of the host.
        needs: Earlier checks in the table. The check runs only if all of them have passed.
        on_error: Replaces the judge if a look-up fails; its parameter `error` is the error. Without
            it the outcome is a warning.
        without: A line that replaces the checks that need this one, if this one does not pass.
        vital: Whether to stop all checks if this one does not pass.
    """

    name: str
    needed_for: Need
    judge: Callable[..., Outcome]
    needs: Sequence[str] = ()
    on_error: Callable[..., Outcome] | None = None
    without: str = ""
    vital: bool = False

    def run(self, host: Host) -> Outcome:
        """Look up the facts, and judge them."""
        try:
            facts = _facts(self.judge, host)
        except (LabError, OSError) as error:
            judge = self.on_error or judge_error
            return self._adapted(
                replace(judge(**_facts(judge, host, error=error)), stops=True), host
            )
        return self._adapted(self.judge(**facts), host)

    def _adapted(self, outcome: Outcome, host: Host) -> Outcome:
        """Return the outcome with the commands and files of this engine in its fix."""
        if self.needed_for not in {Need.COMPOSE, Need.GPUS} or "docker" not in outcome.fix:
            return outcome
        return replace(outcome, fix=host.engine_kind.fix(outcome.fix))


def judge_error(error: LabError | OSError) -> Outcome:
    """Return the outcome of a failed look-up, if its check has no `on_error`."""
    if isinstance(error, LabError):
        return warning(error.what, error.fix)
    if isinstance(error, TimeoutError):
        return warning(str(error), "see `dmesg | tail` and `mount`")
    return warning(f"{short(str(error.filename))}: {error.strerror}", "fix its permissions")


def _facts(judge: Callable[..., Outcome], host: Host, **given: object) -> dict[str, Any]:
    """Look up the facts that are the parameters of a judge."""
    names = inspect.signature(judge).parameters
    return {name: given[name] if name in given else getattr(host, name) for name in names}


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
        Check("image", COMPOSE, images.judge_image, ["engine", "config"], images.judge_no_image),
        Check(
            "buildx",
            COMPOSE,
            images.judge_buildx,
            ["compose", "engine"],
            images.judge_no_builder,
        ),
        Check("disk", COMPOSE, images.judge_disk, ENGINE),
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
        Check("TensorFlow on GPUs", GPUS, gpus.judge_support, ["GPUs"]),
        Check("local backend", GPUS, gpus.judge_local_backend, ["GPUs"]),
        Check("container toolkit", GPUS, containers.judge_toolkit, ["GPUs", "engine"]),
        Check("CDI", GPUS, containers.judge_cdi, ["GPUs", "engine"]),
        Check("daemon-reload", GPUS, containers.judge_daemon_reload, ["container toolkit"]),
        Check("trial container", GPUS, containers.judge_trial, ["container toolkit"]),
    ),
}


def run_checks(
    watch: Callable[[str], None] = lambda _: None,
    table: Mapping[str, Sequence[Check]] = CHECKS,
) -> Iterator[Outcome]:
    """Run all checks of a table, and yield each finding as soon as it is known.

    Args:
        watch: Receives the name of each check before it runs; some checks take seconds.
        table: Checks, by area.

    Yields:
        The findings, in the order of the table.
    """
    host = Host()
    for area, checks in table.items():
        for check in checks:
            if not host.passed.issuperset(check.needs):
                continue
            watch(f"{area}: {check.name}")
            placed = partial(replace, area=area, needed_for=check.needed_for)
            outcome = check.run(host)
            yield placed(outcome, where=check.name)
            if not outcome.stops:
                host.passed.add(check.name)
            elif check.vital:
                return
            elif check.without:
                yield placed(skipped(check.without), where="further checks")
