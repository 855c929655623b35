"""The doctor's judgements of Python, the host, its network and its engine."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.engine.error_hints import explain
from lab.doctor import data, engine, network, python, resources
from lab.doctor.commands import CommandResult
from lab.doctor.engine import EngineInfo
from lab.doctor.model import Outcome
from lab.errors import LabError
from tests.support.doctor import (
    AWAY,
    ENGINE,
    IMAGE,
    PODMAN,
    ROOTLESS,
    Judge,
    Judgements,
    check,
    told,
)
from tests.support.fakes import PLAN

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
    (lambda: python.judge_version((3, 10, 12), 64), "failed: Python is too old", "make install"),
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
    (lambda: engine.judge_buildx("0.29.1", "5.6.1", ENGINE, {}), "ok", "0.29.1"),
    (lambda: engine.judge_buildx("", "2.40.3", ENGINE, {}), "ok", "builder of its own"),
    (lambda: engine.judge_buildx("", "5.6.1", ENGINE, {}), "warning", "docker-buildx-plugin"),
    (lambda: engine.judge_buildx("", "2.40.3", PODMAN, {}), "warning", "DOCKER_BUILDKIT=0"),
    (lambda: engine.judge_buildx("", "2.40.3", PODMAN, {"DOCKER_BUILDKIT": "0"}), "ok", "own"),
    (lambda: engine.judge_no_builder(OLD_BUILDX, MISSING), "failed: buildx is too old", "install"),
    (lambda: engine.judge_no_builder(OLD_BUILDX, STALE), "failed: buildx is too old", "^docker's"),
    (lambda: engine.judge_no_builder(OLD_BUILDX, IMAGE), "warning", "install"),
    (lambda: engine.judge_no_builder(TimeoutError(), MISSING), "warning", "does not answer"),
    (lambda: engine.judge_storage(ENGINE), "ok", "overlay2"),
    (lambda: engine.judge_storage(told(Driver="vfs")), "warning", "full copy"),
    (lambda: engine.judge_storage(told(Driver="overlay")), "warning", "unknown"),
    (lambda: engine.judge_limits(ENGINE), "ok", "cgroups 2, by systemd"),
    (lambda: engine.judge_limits(told(**NO_LIMITS)), "warning", "limit memory, CPU sets"),
    (lambda: engine.judge_limits(told(CgroupDriver="none")), "warning", "cgroups 2 \\("),
    (lambda: engine.judge_limits(EngineInfo({**ROOTLESS.info, **NO_LIMITS})), "warning", "Deleg"),
    (lambda: engine.judge_host_access(told(ServerVersion="20.10.24")), "ok", "this host"),
    (lambda: engine.judge_host_access(told(ServerVersion="28.0.1")), "ok", "--network isolated"),
    (lambda: engine.judge_image(IMAGE), "ok", "^lab:cpu exists$"),
    (lambda: engine.judge_image(MISSING), "failed: no image", "base-image.sh"),
    (lambda: engine.judge_image(replace(MISSING, base_state="exists")), "ok", "exists, .* builds"),
    (lambda: engine.judge_image(replace(STALE, base_state="far")), "ok", "other .* far.* it again"),
    (lambda: engine.judge_image(STALE), "failed: no image", "another version"),
    (lambda: engine.judge_no_image(LabError("odd", "mend")), "failed: no image", "odd → mend"),
    (lambda: engine.judge_disk((Path("/d"), 2 * 10**9), IMAGE), "ok", "/d"),
    (lambda: engine.judge_disk((Path("/d"), 10**8), IMAGE), "warning", "/d"),
    (lambda: engine.judge_disk((Path("/d"), 10**9), MISSING), "failed: no space for the image", ""),
    (lambda: engine.judge_disk(None, IMAGE), "skipped", "host"),
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


@pytest.mark.parametrize(("judge", "verdict", "words"), [*PYTHON, *HOST, *NETWORK, *DOCKER])
def test_each_judgement(judge: Judge, verdict: str, words: str) -> None:
    check(judge, verdict, words)
    assert "secret" not in judge().what
