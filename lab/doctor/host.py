"""The facts of this host that the checks judge."""

from __future__ import annotations

import os
import shutil
import struct
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from lab.doctor import containers, data, engine, gpus, images, network, python, resources
from lab.placement.plan import Plan
from lab.threads import in_background

LIMIT_S: Final = 10.0
"""Time limit of a look-up in seconds. Most are fast, but a file server may hang."""

T = TypeVar("T")


class Fact(Generic[T]):
    """A fact that is looked up once, when a check first needs it.

    Args:
        look_up: Returns the fact of a host. It may use other facts of the host.
        limit_s: Time limit of the look-up in seconds.
    """

    def __init__(self, look_up: Callable[[Host], T], limit_s: float = LIMIT_S) -> None:
        self.look_up = look_up
        self.limit_s = limit_s

    def __get__(self, host: Host | None, owner: type[Host]) -> T:
        """Return the fact, or raise the error of its look-up."""
        if host is None:
            return self  # type: ignore[return-value]  # `Host.cpus`, as with other descriptors
        if self not in host.found:
            host.found[self] = in_background(partial(self.look_up, host))
        try:
            return cast("T", host.found[self].result(self.limit_s))
        except TimeoutError:
            raise TimeoutError(f"no answer within {self.limit_s:.0f} s") from None


class Host:
    """All facts of this host.

    Attributes:
        found: The started look-ups.
        passed: Names of the checks that have passed.
    """

    def __init__(self) -> None:
        self.found: dict[Fact[Any], Future[Any]] = {}
        self.passed: set[str] = set()

    python_version = Fact(lambda _: sys.version_info[:3])
    pointer_bits = Fact(lambda _: struct.calcsize("P") * 8)
    packages = Fact(lambda _: python.package_faults(python.requirements()))
    tensorflow = Fact(lambda _: python.import_tensorflow(), python.IMPORT_S + LIMIT_S)

    cpus = Fact(lambda _: resources.cpu_count())
    memory = Fact(lambda _: resources.memory_bytes())
    inotify_limits = Fact(lambda _: resources.inotify_limits())
    open_files_limit = Fact(lambda _: resources.open_files_limit())
    thread_limit = Fact(lambda _: resources.thread_limit())
    environ = Fact(lambda _: dict(os.environ))

    nvml = Fact(lambda _: gpus.read_nvml(), gpus.NVML_S)
    inventory = Fact(lambda host: gpus.inventory(host.nvml, host.cpus, host.memory), gpus.NVML_S)
    pci_gpus = Fact(lambda _: gpus.pci_gpus())
    has_uvm = Fact(lambda _: gpus.has_uvm())

    config = Fact(lambda host: data.read_config(host.inventory), data.READ_S)
    plan = Fact(lambda host: host.config.plan)
    requested_gpus = Fact(lambda host: host.config.gpus)
    dataset = Fact(lambda _: data.verify_dataset(), data.READ_S)
    runs = Fact(lambda _: data.runs_directory())
    state = Fact(lambda _: data.state_directory())
    local_environments = Fact(lambda _: data.local_environments())

    why_no_namespaces = Fact(lambda _: network.why_no_namespaces(), network.PROBE_S + LIMIT_S)
    switches = Fact(lambda _: network.kernel_switches())
    ports = Fact(lambda host: network.check_ports(host.plan, host.why_no_namespaces))
    routes = Fact(lambda _: network.routes())

    docker = Fact(lambda _: shutil.which("docker"))
    compose_version = Fact(lambda _: engine.compose_version())
    buildx_version = Fact(lambda _: images.buildx_version(), 2 * engine.ASK_S)
    engine_info = Fact(lambda _: engine.read_engine(), 2 * engine.ASK_S)
    has_engine = Fact(lambda host: "engine" in host.passed)
    engine_kind = Fact(lambda host: engine.kind(host.engine_info if host.has_engine else None))
    image = Fact(lambda host: images.find_image(cast("Plan", host.plan)), images.REGISTRY_S)
    known_image = Fact(lambda host: host.image if "image" in host.passed else None)
    engine_disk = Fact(lambda host: images.disk(host.engine_info))

    cuda = Fact(lambda host: python.tensorflow_build(host.tensorflow)[1])
    has_cudnn = Fact(lambda host: bool(host.cuda) and gpus.find_cudnn())
    toolkit = Fact(lambda _: containers.find_toolkit())
    uses_cdi = Fact(lambda host: containers.uses_cdi(host.engine_info))
    trial = Fact(
        lambda host: containers.try_gpu(
            host.inventory.gpus[0].device_id,
            host.known_image,
            is_podman=host.engine_info.is_podman,
        ),
        containers.TRIAL_S + containers.REMOVE_S + LIMIT_S,
    )
