"""The doctor's judgements of Python, the host, its network, its engine and its GPUs."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from lab.backends.engine.error_hints import explain
from lab.doctor import containers, data, engine, gpus, images, network, python, resources
from lab.doctor.commands import CommandResult
from lab.doctor.containers import Toolkit, Trial, judge_trial
from lab.doctor.engine import EngineInfo
from lab.doctor.model import Need, Outcome, Report
from lab.doctor.view import lines
from lab.errors import LabError
from lab.gpu import Condition, Fault, Gpu, Inventory
from tests.support.doctor import (
    AWAY,
    BOX,
    ENGINE,
    H100,
    IMAGE,
    NO_BOX,
    PODMAN,
    ROOTLESS,
    SEEN,
    UUID,
    Judge,
    Judgements,
    check,
    fault,
    told,
)
from tests.support.fakes import PLAN
from tests.support.shown import assert_shows

MISSING, STALE = replace(IMAGE, is_here=False), replace(IMAGE, is_old=True)
OLD_BUILDX = LabError("building an image: docker's plugin buildx is too old", "install it")
WITH_CUDA = CommandResult(0, 'noise\n["2.21.1", "12.5.1"]\n')
BROKEN = CommandResult(1, "", "Trace\nImportError: no\x1b[31m lib")
NO_ENGINE, DENIED = (
    explain("reaching the engine", [f"{each} the Docker daemon socket"])
    for each in ("Cannot connect to", "permission denied while trying to connect to")
)
PROXY = {"http_proxy": "http://me:secret@proxy:3128", "no_proxy": "localhost"}
EXEMPT = {"no_grpc_proxy": "localhost,tf1,tf2,tf3"}
BIG = replace(PLAN, tasks=PLAN.tasks * 50)
TAKEN = LabError("port 2223 cannot be used: Address already in use", "end what uses it")
SWITCH = {"kernel/apparmor_restrict_unprivileged_userns": 1}
NO_USERS = {"user/max_user_namespaces": 0, "kernel/unprivileged_userns_clone": 1}


def room(free: int) -> data.Directory:
    return data.Directory(Path("runs"), Path("/"), "", free, "runs", "LAB_RUNS_DIR")


def nets(*texts: str) -> list[ipaddress.IPv4Network]:
    return [ipaddress.IPv4Network(text) for text in texts]


def pools(*networks: str, routes: bool = False, info: EngineInfo = ENGINE) -> Outcome:
    vpn = [(net, "tun0") for net in nets(*BOTH)]
    return engine.judge_address_pools(
        replace(info, networks=nets(*networks)), vpn if routes else []
    )


def environments(**states: list[str]) -> Outcome:
    return engine.judge_environments(replace(ENGINE, projects=states))


PYTHON: Judgements = [
    (lambda: python.judge_version((3, 14, 0), 64), "warning", "not tested"),
    (lambda: python.judge_version((3, 10, 12), 64), "failed: Python is too old", "lab with it"),
    (lambda: python.judge_version((3, 12, 1), 32), "failed: Python has 32 bits", "32 bit"),
    (lambda: python.judge_packages((9, ["x", "y"])), "failed stops: packages", "x; y → .*host.txt"),
    (lambda: python.judge_tensorflow(CommandResult(0, '["2.21.0", ""]')), "ok", "for CPUs"),
    (lambda: python.judge_tensorflow(WITH_CUDA), "ok", "2.21.1, built for CUDA 12.5.1"),
    (lambda: python.judge_tensorflow(CommandResult(0, '["2.15.1", ""]')), "warning", "2.21"),
    (lambda: python.judge_tensorflow(None), "warning: no TensorFlow", "not installed"),
    (lambda: python.judge_tensorflow(BROKEN), "failed: TensorFlow", "no.+lib → .*tensorflow.txt"),
    (lambda: python.judge_tensorflow(CommandResult(None)), "failed: TensorFlow", "more than 60 s"),
]
HOST: Judgements = [
    (lambda: data.judge_dataset((4, 11_000_000, "")), "ok", "4 files, 11 MB"),
    (lambda: data.judge_dataset((0, 0, "x is damaged")), "failed: the data set", "git checkout"),
    (lambda: data.judge_room(room(2 * 10**9)), "ok", "2.0 GB"),
    (lambda: data.judge_room(room(10**9 - 1)), "warning", "delete"),
    (lambda: data.judge_room(room(10**7)), "failed: the disk is full", "delete"),
    (lambda: data.judge_environments([("a", True), ("b", False)]), "warning", "lab down b"),
    (lambda: resources.judge_cpus(8, PLAN), "ok", "8 CPUs for 3 tasks$"),
    (lambda: resources.judge_cpus(1, PLAN), "ok", "1 CPU for 3 tasks, which share"),
    (lambda: resources.judge_memory((2**35, 2**34), PLAN), "ok", "16 GiB of 32 GiB"),
    (lambda: resources.judge_memory((2**31, 2**30), PLAN), "warning", "need about 2.197 GiB"),
    (lambda: resources.judge_inotify((128, 65536)), "ok", "65,536"),
    (lambda: resources.judge_inotify((None, None)), "skipped", "no such limits"),
    (lambda: resources.judge_inotify((64, 65536)), "warning", "sysctl"),
    (lambda: resources.judge_open_files(-1, PLAN), "ok", "no limit"),
    (lambda: resources.judge_open_files(256, PLAN), "warning", "ulimit -n 4096"),
    (lambda: resources.judge_threads(4096, 2, PLAN), "ok", "4,096"),
    (lambda: resources.judge_threads(4096, 2, BIG), "warning", "150 tasks .* 13,500"),
]
NETWORK: Judgements = [
    (lambda: network.judge_namespaces(None, {}), "ok", "own hostname"),
    (lambda: network.judge_namespaces("no util-linux", {}), "warning", "apt-get install util-l"),
    (lambda: network.judge_namespaces("LAB_LOCAL_NAMESPACES is 0", {}), "warning", "`unset "),
    (lambda: network.judge_namespaces("no", SWITCH), "warning", "apparmor_.*_userns=0`"),
    (lambda: network.judge_namespaces("no", NO_USERS), "warning", "w user.max_\\w+=10000`"),
    (lambda: network.judge_namespaces("no", {}), "warning", "every interface.* containers"),
    (lambda: network.judge_ports((None, None)), "skipped", "config"),
    (lambda: network.judge_ports(([2222, 2223], None)), "ok", "2222 to 2223 are free"),
    (lambda: network.judge_ports(([2222], TAKEN)), "failed: a port is in use", "2223 .* → end"),
    (lambda: network.judge_addresses([(nets("10.77.5.0/24")[0], "wg0")]), "ok", "by wg0: harmless"),
    (lambda: network.judge_proxies({"HTTPS_PROXY": "x"}, PLAN), "ok", "only HTTPS_PROXY"),
    (lambda: network.judge_proxies(PROXY, PLAN), "warning", "no_grpc_proxy=tf1,tf2,tf3`"),
    (lambda: network.judge_proxies({**PROXY, **EXEMPT}, PLAN), "ok", r"\*\*\*@proxy"),
    (lambda: network.judge_proxies(PROXY, None), "ok", "exempts"),
    (lambda: network.judge_proxies({**PROXY, "no_proxy": "tf1"}, None), "warning", "=localhost`"),
]
HANGS = LabError("reaching the engine: the Docker engine does not answer", "see its log")
OLD_PODMAN = replace(told(ServerVersion="4.9.3"), is_podman=True)
OLD, X = told(ServerVersion="20.9.15"), {"DOCKER_HOST": "unix:///x.sock"}
BOTH = ("172.16.0.0/12", "192.168.0.0/16")
MOST = ("172.16.0.0/12", "192.168.0.0/17", "192.168.128.0/18")
NO_POOL = "failed: no address range"
POOLS = [{"Base": "10.99.0.0/24", "Size": 28}, {"Base": "fd00::/8", "Size": 64}]
NO_LIMITS: dict[str, object] = {"MemoryLimit": False, "CPUSet": False}
DOCKER: Judgements = [
    (lambda: engine.judge_command(None), "warning stops: no Docker", "apt-get install"),
    (lambda: engine.judge_engine(ENGINE, {}), "ok", "^28.2.2$"),
    (lambda: engine.judge_engine(ROOTLESS, {"DOCKER_HOST": "u"}), "ok", "at u, rootless"),
    (lambda: engine.judge_engine(PODMAN, {}), "ok", "^Podman 5.4.2$"),
    (lambda: engine.judge_engine(OLD_PODMAN, {}), "failed: Podman is too old", "4.9.3"),
    (lambda: engine.judge_engine(OLD, {}), "failed: the engine is too old", "20.10"),
    (lambda: engine.judge_no_engine(TimeoutError(), {}), "failed: the engine hangs", "restart"),
    (lambda: engine.judge_no_engine(HANGS, X), "failed: the engine hangs", "unix:///x.*restart"),
    (lambda: engine.judge_no_engine(NO_ENGINE, {}), "failed: no engine answers", "start docker"),
    (lambda: engine.judge_no_engine(DENIED, {}), "failed: no permission", "usermod -aG docker"),
    (lambda: engine.judge_no_compose(TAKEN), "failed: no compose plugin", "2223 .* → end"),
    (lambda: images.judge_buildx("0.29.1", "5.6.1", ENGINE, {}), "ok", "0.29.1"),
    (lambda: images.judge_buildx("", "2.40.3", ENGINE, {}), "ok", "builder of its own"),
    (lambda: images.judge_buildx("", "5.6.1", ENGINE, {}), "warning", "docker-buildx-plugin"),
    (lambda: images.judge_buildx("", "2.40.3", PODMAN, {}), "warning", "DOCKER_BUILDKIT=0"),
    (lambda: images.judge_buildx("", "2.40.3", PODMAN, {"DOCKER_BUILDKIT": "0"}), "ok", "own"),
    (lambda: images.judge_no_builder(OLD_BUILDX, MISSING), "failed: buildx is too old", "install"),
    (lambda: images.judge_no_builder(OLD_BUILDX, STALE), "failed: buildx is too old", "^docker's"),
    (lambda: images.judge_no_builder(OLD_BUILDX, IMAGE), "warning", "install"),
    (lambda: images.judge_no_builder(TimeoutError(), MISSING), "warning", "does not answer"),
    (lambda: engine.judge_storage(ENGINE), "ok", "overlay2"),
    (lambda: engine.judge_storage(told(Driver="vfs")), "warning", "full copy"),
    (lambda: engine.judge_storage(told(Driver="overlay")), "warning", "unknown"),
    (lambda: engine.judge_limits(ENGINE), "ok", "cgroups 2, by systemd"),
    (lambda: engine.judge_limits(told(**NO_LIMITS)), "warning", "limit memory, CPU sets"),
    (lambda: engine.judge_limits(told(CgroupDriver="none")), "warning", "cgroups 2 \\("),
    (lambda: engine.judge_limits(EngineInfo({**ROOTLESS.info, **NO_LIMITS})), "warning", "Deleg"),
    (lambda: engine.judge_host_access(told(ServerVersion="20.10.24")), "ok", "this host"),
    (lambda: engine.judge_host_access(told(ServerVersion="28.0.1")), "ok", "-o network=isolated"),
    (lambda: images.judge_image(IMAGE), "ok", "^lab:cpu exists$"),
    (lambda: images.judge_image(MISSING), "failed: no image", "base-image.sh"),
    (lambda: images.judge_image(replace(MISSING, base_state="exists")), "ok", "exists, .* builds"),
    (lambda: images.judge_image(replace(STALE, base_state="far")), "ok", "other .* far.* it again"),
    (lambda: images.judge_image(STALE), "failed: no image", "another version"),
    (lambda: images.judge_no_image(LabError("odd", "fix")), "failed: no image", "odd → fix"),
    (lambda: images.judge_disk((Path("/d"), 2 * 10**9), IMAGE), "ok", "/d"),
    (lambda: images.judge_disk((Path("/d"), 10**8), IMAGE), "warning", "/d"),
    (lambda: images.judge_disk((Path("/d"), 10**9), MISSING), "failed: no space for the image", ""),
    (lambda: images.judge_disk(None, IMAGE), "skipped", "host"),
    (lambda: pools(*MOST), "ok", "4 more"),
    (lambda: pools(*MOST, "192.168.192.0/19"), "warning", "2 more networks: 4 networks exist"),
    (lambda: pools(*BOTH), NO_POOL, "docker network prune"),
    (lambda: pools(routes=True), NO_POOL, "172.16.0.0/12 by tun0.*default-address-pools"),
    # A route to a network of the engine's own is no route of another program.
    (lambda: pools(*BOTH, routes=True), NO_POOL, "docker network prune"),
    (lambda: pools(routes=True, info=AWAY), "ok", "31 more"),
    (lambda: pools(info=PODMAN), "skipped", "Podman"),
    (lambda: pools(info=told(DefaultAddressPools=POOLS)), "ok", "16 more"),
    (lambda: environments(a=["running", "exited"]), "ok", "1 up"),
    (lambda: environments(a=["exited"], b=["running"]), "warning", "lab down a`"),
]


# ---- GPUs

SECOND, SLICE = UUID.replace("1", "2"), UUID.replace("GPU", "MIG")
CUT = replace(BOX, gpus=(Gpu(1, SLICE, "NVIDIA A100 MIG 3g.20gb", slice_of=SECOND),))


def support(*capabilities: str, environ: Mapping[str, str] = MappingProxyType({})) -> Outcome:
    found = tuple(
        replace(H100, index=index, compute_capability=each)
        for index, each in enumerate(capabilities)
    )
    return gpus.judge_support(replace(BOX, gpus=found), environ)


def toolkit(
    info: EngineInfo = ENGINE,
    found: Toolkit = Toolkit(),  # noqa: B008  (frozen)
    *,
    cdi: bool = False,
    gpus_wanted: int = 1,
    cudnn: bool = False,
    trial: str = "",
) -> Outcome:
    result = CommandResult(0 if trial else None, trial)
    return containers.judge_toolkit(
        info,
        found,
        uses_cdi=cdi,
        requested_gpus=gpus_wanted,
        has_cudnn=cudnn,
        trial=Trial(UUID, None, result),
    )


def cdi(
    *names: str, host: Inventory = BOX, version: str = "29.2.0", kind: str = "nvidia.com/gpu"
) -> Outcome:
    """The check of an engine that knows devices of these names by CDI."""
    devices = [{"Source": "cdi", "ID": f"{kind}={each}"} for each in names]
    engine = told(ServerVersion=version, DiscoveredDevices=devices)
    return containers.judge_cdi(host, engine, containers.uses_cdi(engine))


REFUSED = 'docker: could not select device driver "nvidia" with capabilities: [[gpu]].\n'


def tried(
    code: int | None, out: str = "", err: str = "", image: str | None = "lab:cuda"
) -> Outcome:
    return judge_trial(Trial(UUID, image, CommandResult(code, out, err)))


NO_LIBCUDA = replace(
    BOX,
    cuda="",
    faults=(Fault(Condition.OTHER, "libcuda.so.1 is not installed", "get it", "CUDA version"),),
)
OLD_NVML = replace(BOX, faults=(fault(Condition.OLD_DRIVER, "CUDA version"),))
LOST = replace(BOX, faults=(fault(Condition.GPU_LOST, "GPU 3"),))
LEFT_OUT = replace(BOX, gpus=(), left_out=("GPU 0 is in MIG mode without slices",))
UNCUT = replace(BOX, faults=(fault(Condition.NO_SLICES, "GPU 2"),))
NONE = replace(NO_BOX, faults=(fault(Condition.NO_DRIVER),))
NEWER = replace(NO_BOX, faults=(fault(Condition.MISMATCH),))
CLOSED = fault(Condition.NO_PERMISSION)
CTK = Toolkit(has_ctk=True)
HOOK = Toolkit(hook="/usr/bin/nvidia-container-runtime-hook", has_ctk=True)
GPUS: Judgements = [
    (lambda: gpus.judge_driver(BOX, 1, 1), "ok", "^580.95.05, CUDA up to 13.0$"),
    (lambda: gpus.judge_driver(NO_LIBCUDA, 1, 1), "ok", "^580.95.05$"),
    # A missing GPU is no failure, whatever the config requests.
    (lambda: gpus.judge_driver(NONE, 0, 8), "warning stops: no GPU", "CPUs"),
    (lambda: gpus.judge_driver(NONE, 2, 8), "warning stops: no driver", "2 NVIDIA.* nvidia-driver"),
    (lambda: gpus.judge_driver(NEWER, 1, 8), f"failed stops: {Condition.MISMATCH}", "sudo reboot"),
    (lambda: gpus.judge_driver(CLOSED, 1, 0), "warning stops: no permission", "ls -l /dev/nvidia"),
    (lambda: gpus.judge_cuda(BOX, False), "warning", "nvidia-modprobe -u -c=0"),
    (lambda: gpus.judge_cuda(NO_LIBCUDA, True), "warning: no CUDA", "libcuda.so.1 .* → get it"),
    # A driver that is too old to report the version has CUDA all the same.
    (lambda: gpus.judge_cuda(OLD_NVML, True), "ok", "start"),
    (lambda: gpus.judge_gpus(NO_LIBCUDA, 1), "ok", "1 NVIDIA H100 80GB HBM3 of 80 GiB"),
    (lambda: gpus.judge_gpus(LEFT_OUT, 1), "warning stops: no GPU", "without slices"),
    (lambda: gpus.judge_gpus(LOST, 2), "failed: GPU lost", "GPU 3: GPU lost.* Xid"),
    (lambda: gpus.judge_gpus(LOST, 0), "warning", "Xid"),
    (lambda: gpus.judge_gpus(replace(LOST, gpus=()), 0), "warning stops: GPU lost", "none; GPU 3"),
    (lambda: gpus.judge_mig(CUT), "ok", "1 slice, by UUID, on all"),
    (lambda: gpus.judge_mig(replace(BOX, gpus=(H100, *CUT.gpus))), "ok", "and 1 whole GPU"),
    (lambda: gpus.judge_mig(UNCUT), "warning", "-i 2 -mig 0"),
    (lambda: support("9.0"), "ok", "works with all GPUs"),
    (lambda: support("9.0", "5.2"), "warning", "^GPU 1: .*needs"),
    (lambda: support("9.0", environ={"LAB_IMAGE": "mine"}), "skipped", "does not know"),
    (lambda: toolkit(told(Runtimes={"nvidia": {}})), "ok", "runtime `nvidia`"),
    (lambda: toolkit(found=HOOK), "ok", HOOK.hook),
    (lambda: toolkit(cdi=True), "ok", "CDI"),
    (lambda: cdi(UUID, "0", "all"), "ok", "knows 1 GPU of this host"),
    (lambda: cdi(UUID, host=CUT), "warning", f"lacks {SLICE}; has {UUID}, which .* → .*-refresh"),
    (lambda: cdi(SLICE, SECOND, host=CUT), "ok", "knows 1 GPU"),  # a slice, and its GPU
    (lambda: cdi(UUID, SECOND, host=replace(BOX, left_out=("LAB_GPUS",))), "ok", "knows 1 GPU"),
    (lambda: cdi("0", "all"), "warning", f"lacks {UUID}: containers"),
    (lambda: cdi("0", version="28.2.0"), "ok", "does not use it"),
    (cdi, "skipped", "not checked: the engine lists no GPUs"),
    (lambda: cdi("eth0", kind="vendor.com/net"), "skipped", "not checked: the engine lists no"),
    (lambda: containers.judge_cdi(BOX, PODMAN, uses_cdi=True), "skipped", "not checked"),
    (
        lambda: containers.judge_cdi(BOX, AWAY, uses_cdi=False),
        "skipped",
        "not checked: .* another host",
    ),
    (lambda: toolkit(trial=SEEN), "ok", "a container gets"),
    (toolkit, "failed stops: no container toolkit", "install-guide"),
    (lambda: toolkit(gpus_wanted=0), "warning stops: no container toolkit", "not installed"),
    (
        lambda: toolkit(found=CTK),
        "failed stops: no container toolkit",
        "→ `sudo nvidia-ctk runtime",
    ),
    (
        lambda: containers.judge_daemon_reload(ENGINE, uses_cdi=False),
        "warning",
        "groupfs.*cdi generate",
    ),
    (lambda: containers.judge_daemon_reload(ENGINE, uses_cdi=True), "ok", "CDI"),
    (lambda: containers.judge_daemon_reload(ROOTLESS, uses_cdi=False), "ok", "rootless"),
    (lambda: gpus.judge_local_backend("12.5.1", True, False), "ok", "for CUDA"),
    (lambda: gpus.judge_local_backend("12.5.1", False, True), "warning", "\\[and-cuda\\]==2.21"),
    (lambda: gpus.judge_local_backend("", False, True), "ok", "in containers"),
    (lambda: gpus.judge_local_backend("", False, False), "warning: no CUDA", "install Docker"),
    (lambda: tried(0, image=None), "skipped", "lab build"),
    (lambda: tried(0, SEEN), "ok", "no other"),
    (lambda: tried(125, "", REFUSED), "failed: no GPU in a container", "container toolkit"),
    (lambda: tried(9, "NVML: Unknown Error\n"), "failed: no GPU in a container", "^NVML: Unknown"),
    (lambda: tried(0, SEEN + SEEN), "failed: no GPU in a container", "sees 2 GPUs"),
]


@pytest.mark.parametrize(("judge", "verdict", "words"), [*PYTHON, *HOST, *NETWORK, *DOCKER, *GPUS])
def test_each_judgement(judge: Judge, verdict: str, words: str) -> None:
    check(judge, verdict, words)
    assert "secret" not in judge().what


def printed(area: str, **found: Outcome) -> str:
    """What `lab doctor` prints about an area."""
    shown = [
        line for where, each in found.items() for line in lines(replace(each, where=where), 80)
    ]
    return "\n".join([area, *(line.plain for line in shown)])


def test_the_page_on_hosts_shows_findings() -> None:
    page = "docs/how-to/check-a-host.md"
    no_engine = engine.judge_no_engine(DENIED, {})
    docker = printed(
        "Docker",
        command=engine.judge_command("/usr/bin/docker"),
        compose=engine.judge_compose("2.40.3"),
        engine=no_engine,
    )
    no_gpu = gpus.judge_driver(NONE, 0, 0)
    needs = {Need.COMPOSE: no_engine, Need.GPUS: no_gpu}
    report = Report([replace(each, needed_for=need) for need, each in needs.items()])
    assert_shows(page, "Docker\n", f"{docker}\n{report.sentence()}")
    assert_shows(page, "GPUs\n", printed("GPUs", CDI=cdi(SLICE.replace("5", "7"), host=CUT)))
