"""What this box can and cannot do, and the mend for each. Nothing is changed by looking."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from lab.doctor import data, engine, gpus, images, network, python, resources
from lab.doctor.asking import ask
from lab.doctor.model import Finding, Need, Report, Verdict
from lab.errors import LabError
from lab.gpu import Fault, Inventory, survey
from lab.task.text import short
from lab.tf_versions import CURRENT
from lab.threads import later, within

__all__ = ["Finding", "Need", "Report", "Verdict", "examine"]

LOOK_S: Final = 10.0
"""Seconds for one look at this machine that should take none: a file server may hang."""

REGISTRY_S: Final = 20.0

Watch = Callable[[str], None]
"""Hears what is looked at now."""


def examine(watch: Watch = lambda _: None) -> Iterator[Finding]:
    """Look at everything, and say each finding as soon as it is known.

    Args:
        watch: Hears what is looked at before it is: some of it takes seconds.

    Yields:
        The findings, area by area. Each look has a time-out, and what fails unforeseen is a
        finding too.
    """
    watch("Python")
    yield python.version()
    packages = python.packages()
    yield packages
    if packages.verdict is Verdict.FAILED:
        # Everything else needs them.
        return
    yield from _everything(watch)


def _everything(watch: Watch) -> Iterator[Finding]:
    # The slowest look begins first.
    importing = later(python.import_tensorflow)
    watch("the cards")
    found = gpus.look(survey)
    box = found if isinstance(found, Inventory) else _no_cards()
    described = data.described(box)

    watch("TensorFlow")
    wait_s = python.IMPORT_S + LOOK_S
    tensorflow, has_cuda = python.tensorflow(_pin(), lambda: importing.result(wait_s))
    yield tensorflow

    watch("the data")
    yield described.finding
    yield from _data()

    watch("this machine")
    yield from _resources(described)

    watch("the network")
    routes = network.routes_of()
    yield from _network(described, routes)

    watch("the Docker engine")
    docker = _Docker()
    yield from _docker(described, routes, docker, watch)

    watch("the cards")
    yield from _gpus(found, described, docker, has_cuda=has_cuda, watch=watch)


@dataclass(slots=True)
class _Docker:
    """What was learned of the engine, for the checks that follow.

    Attributes:
        answers: What it says of itself; None where it does not answer.
        image: The tasks' image; None where it is not known.
    """

    answers: engine.Answers | None = None
    image: images.Facts | None = None


def _places() -> dict[str, tuple[Path, str]]:
    """What is written where: by its name the directory, and the variable that names another."""
    from lab.run.store import DEFAULT_RUNS_DIR  # noqa: PLC0415

    runs = Path(os.environ.get("LAB_RUNS_DIR") or DEFAULT_RUNS_DIR)
    return {"runs": (runs, "LAB_RUNS_DIR"), "state": (data.state_directory(), "LAB_STATE")}


def _data() -> Iterator[Finding]:
    yield from _guarded(data.AREA, "MNIST", Need.EVERYTHING, data.dataset, data.READ_S)
    for name, (directory, variable) in _places().items():
        look = partial(data.writable, f"{name} directory", directory, variable)
        yield from _guarded(data.AREA, f"{name} directory", Need.EVERYTHING, look)
    look = partial(data.leftovers, data.local_environments)
    yield from _guarded(data.AREA, "local environments", Need.LOCAL, look)


def _resources(described: data.Described) -> Iterator[Finding]:
    area, plan = resources.AREA, described.plan
    cpus = resources.cpu_count()
    yield resources.cpus(cpus, plan)
    yield resources.memory(*resources.memory_bytes(), plan)
    for name, (directory, _) in _places().items():
        look = partial(resources.disk, f"room for {name}", directory, resources.free_bytes)
        yield from _guarded(area, f"room for {name}", Need.EVERYTHING, look)
    limits = Path("/proc/sys/fs/inotify")
    yield resources.inotify(
        resources.number_in(limits / "max_user_instances"),
        resources.number_in(limits / "max_user_watches"),
    )
    yield resources.files(resources.open_files(), plan)
    yield resources.threads(resources.thread_limit(), cpus, plan)


def _network(described: data.Described, routes: list[network.Route]) -> Iterator[Finding]:
    from lab.backends.local import isolation, layout  # noqa: PLC0415
    from lab.backends.local.layout import check_free  # noqa: PLC0415
    from lab.backends.local.state import Isolation  # noqa: PLC0415

    try:
        why_not = within(network.PROBE_S, isolation.why_not)
    except TimeoutError:
        why_not = f"building one took more than {network.PROBE_S:.0f} s"
    yield network.namespaces(why_not, network.switches())
    plan = described.plan
    wanted: list[int] = []
    if plan is not None and why_not is not None:
        wanted = layout.ports_of(layout.addresses_of(plan, Isolation.PROCESSES))
    yield network.ports(plan, wanted, check_free)
    yield network.addresses(routes)
    yield network.proxies(os.environ, [node.name for node in plan.nodes] if plan else [])


def _docker(
    described: data.Described, routes: list[network.Route], docker: _Docker, watch: Watch
) -> Iterator[Finding]:
    from lab.backends.compose.cli import compose_version  # noqa: PLC0415

    path = engine.docker_path()
    yield engine.command(path)
    if path is None:
        return
    yield engine.compose(partial(within, LOOK_S, compose_version))
    # Its own time-out is for each call; this one is for all of them.
    look = partial(within, 2.0 * engine.ASK_S, engine.look)
    finding, answers = engine.engine(look, engine.host())
    docker.answers = answers
    yield finding
    if answers is None:
        yield engine.further("without an engine there is nothing to look at")
        return
    yield engine.storage(answers.info)
    yield engine.limits(answers.info)
    if described.plan is not None:
        watch("the image")
        look_for = partial(images.look, described.plan, Path.cwd())
        finding, docker.image = images.available(partial(within, REGISTRY_S, look_for))
        yield finding
    measure = partial(images.room, answers, docker.image, resources.free_bytes)
    yield from _guarded(engine.AREA, "disk", Need.COMPOSE, measure)
    yield engine.address_pools(answers, routes)
    yield engine.leftovers(answers.projects)


def _gpus(
    found: Inventory | Fault,
    described: data.Described,
    docker: _Docker,
    *,
    has_cuda: bool,
    watch: Watch,
) -> Iterator[Finding]:
    asked, answers = described.gpus, docker.answers
    driver = gpus.driver(found, gpus.pci_cards(), asked)
    yield driver
    if isinstance(found, Fault) or driver.verdict is not Verdict.OK:
        yield gpus.further("without a driver there is no card to look at")
        return
    yield gpus.cards(found, asked)
    yield gpus.mig(found)
    if not found.gpus:
        return
    yield gpus.cuda(found)
    has_cudnn = has_cuda and gpus.find_cudnn()
    yield gpus.cuda_locally(has_cuda=has_cuda, has_cudnn=has_cudnn, has_engine=answers is not None)
    if answers is None:
        return
    toolkit = gpus.find_toolkit()
    finding = gpus.toolkit(answers.info, toolkit, asked, has_cuda=has_cudnn)
    tasks = docker.image
    name = tasks.name if tasks is not None and tasks.is_here else None
    watch("a card in a container")
    trial = gpus.trial(found.gpus[0].device_id, name, ask)
    if finding.verdict is not Verdict.OK:
        # The engine may have a PATH of its own: what a container gets is what counts.
        if trial.verdict is not Verdict.OK:
            yield finding
            return
        finding = gpus.toolkit_unseen()
    yield finding
    yield gpus.daemon_reload(answers.info, toolkit)
    yield trial


def _guarded(
    area: str,
    name: str,
    need: Need,
    look: Callable[[], Finding],
    seconds: float = LOOK_S,
) -> Iterable[Finding]:
    """A look that may hang, or find something unreadable: that is a finding too."""
    try:
        return [within(seconds, look)]
    except TimeoutError:
        what, mend = f"no answer within {seconds:.0f} s", "see `dmesg | tail` and `mount`"
    except LabError as error:
        what, mend = error.what, error.mend
    except OSError as error:
        what, mend = f"{short(str(error.filename))}: {error.strerror}", "mend its permissions"
    return [Finding(area, name, Verdict.WARNING, what, mend, need)]


def _no_cards() -> Inventory:
    total, _ = resources.memory_bytes()
    return Inventory("none", (), resources.cpu_count(), total)


def _pin() -> str:
    """The version of TensorFlow that lab was tried with, `2.21.*`."""
    return CURRENT.pin
