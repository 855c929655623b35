"""Environments of real containers, with programs that need no TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.compose import ComposeBackend, ComposeEnvironment
from lab.backends.compose.client import Engine
from lab.config import load_cluster
from lab.errors import LabError
from lab.gpu import take_inventory
from lab.placement.place import place
from lab.placement.plan import Link
from lab.render import RenderOptions
from lab.render.compose import ISOLATES_SINCE, render
from lab.task.probes.version import digest
from lab.task.protocol import Request, RunSpec, TaskStatus
from tests.support.agents import wait_for
from tests.support.docker import (
    DESCRIPTION,
    HOST,
    NAME,
    docker,
    docker_output,
    inspect,
    left_behind,
    no_word,
    place_on,
)

pytestmark = pytest.mark.engine


# A training program as the agents see it: it prints, and it ends.
PROGRAM = """\
import json, os, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
if task["type"] == "ps":
    time.sleep(600)
print("lab kind=start run=%s job_name=worker task_index=%d seq=0" % (
    os.environ["LAB_RUN_ID"], task["index"]))
print("a title \\033]0;owned\\007 and half a line", end="", flush=True)
if "--fail" in sys.argv:
    sys.exit(3) if task["index"] == 0 else time.sleep(600)
"""


def inside(task: str, code: str) -> str:
    return docker("exec", f"{NAME}-{task}-1", "python", "-c", code)


@pytest.fixture(scope="module")
def module_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    (root / "data").mkdir()
    (root / "scripts").mkdir()
    (root / "scripts" / "program.py").write_text(PROGRAM)
    (root / "scripts" / "mnist_async.py").write_text(PROGRAM)
    (root / "scripts" / "long.py").write_text("import time\ntime.sleep(600)\n")
    return root


@pytest.fixture(scope="module")
def environment(pinning: None, module_root: Path) -> Iterator[ComposeEnvironment]:
    plan = place_on(module_root, "uuid")
    environment = ComposeBackend().up(plan, root=module_root, notify=no_word)
    yield environment
    environment.down(no_word)
    assert left_behind() == []


def request(environment: ComposeEnvironment, run_id: str, *args: str) -> Request:
    return Request(
        run_id=run_id,
        spec=RunSpec(experiment="program", program="program.py", args=args),
        cluster=environment.cluster_spec(),
    )


def collect(environment: ComposeEnvironment, run_id: str, *, follow: bool) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for chunk in environment.stream(run_id, {}, follow=follow):
        if chunk is not None:
            kept = (
                b""
                if chunk.offset is None
                else files[chunk.path][: chunk.offset]
                if chunk.offset
                else b""
            )
            files[chunk.path] = kept + chunk.data
    return files


def states(files: dict[str, bytes]) -> dict[str, str]:
    found = [
        TaskStatus.from_json(data.decode()) for path, data in files.items() if "status/" in path
    ]
    return {status.task: status.state.value for status in found}


def test_every_task_is_up_on_its_node(environment: ComposeEnvironment) -> None:
    tasks = environment.tasks()
    assert [(task.task, task.node, task.address, task.alive) for task in tasks] == [
        ("ps-0", "tf1", "tf1:2222", True),
        ("worker-0", "tf1", "tf1:2223", True),
        ("worker-1", "tf2", "tf2:2222", True),
    ]
    assert {task.detail for task in tasks} == {"running (healthy)"}


def test_found_by_its_labels_from_anywhere(
    environment: ComposeEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = ComposeBackend().find(NAME)
    assert found is not None
    assert found.tasks() == environment.tasks()
    assert found.sources_sha256 == digest()
    assert NAME in [each.project for each in ComposeBackend().all()]
    assert ComposeBackend().find("no-such-environment") is None


def test_actual_settings(
    environment: ComposeEnvironment, module_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, text = environment.boot_file()
    assert (name, text) == ("docker-compose.yml", render(place_on(module_root, "uuid")))
    assert environment.provenance()["image"].startswith("sha256:")
    # The edited file differs from the one that ran.
    file = Path(environment.inspect()[0].file)
    file.write_text(text.replace("pids_limit: 4096", "pids_limit: 4095"))
    try:
        name, instead = environment.boot_file()
    finally:
        file.write_text(text)
    assert name == "containers.json"
    assert {each["HostConfig"]["PidsLimit"] for each in json.loads(instead)} == {4096}


def test_every_container_is_hardened(environment: ComposeEnvironment) -> None:
    containers = inspect(environment)
    assert len(containers) == 5
    for service, each in containers.items():
        host = each["HostConfig"]
        assert each["Config"]["User"] == "1000:1000", service
        assert host["CapDrop"] == ["ALL"], service
        assert not host["CapAdd"], service
        assert host["ReadonlyRootfs"], service
        assert not host["Privileged"], service
        assert "no-new-privileges:true" in host["SecurityOpt"], service
        assert host["PidsLimit"] > 0, service
        assert host["RestartPolicy"]["Name"] in {"", "no"}, service
        assert not host["PortBindings"], service
        writable = [mount["Destination"] for mount in each["Mounts"] if mount["RW"]]
        assert writable in ([], ["/runs"]), service
        assert "docker.sock" not in json.dumps(each["Mounts"]), service
    (network,) = json.loads(docker("network", "inspect", f"{NAME}_cluster"))
    assert network["Internal"]


def test_nodes_find_each_other_by_name(environment: ComposeEnvironment) -> None:
    code = """
import socket
print(socket.gethostname())
for name in ("tf1", "tf2"):
    print(socket.gethostbyname(name))
"""
    own, tf1, tf2 = inside("worker-1", code).splitlines()
    assert own == "tf2"
    addresses = {
        service: each["NetworkSettings"]["Networks"][f"{NAME}_cluster"]["IPAddress"]
        for service, each in inspect(environment).items()
        if service in {"tf1", "tf2"}
    }
    assert {"tf1": tf1, "tf2": tf2} == addresses


def test_each_task_has_only_its_own_gpus(environment: ComposeEnvironment) -> None:
    def seen_by_pid_1(service: str) -> tuple[str, str | None]:
        code = "print(open('/proc/1/environ').read())"
        pairs = (pair.partition("=") for pair in inside(service, code).split("\0"))
        found = {name: value for name, _, value in pairs}
        return found["NVIDIA_VISIBLE_DEVICES"], found.get("CUDA_VISIBLE_DEVICES")

    pins = {task.task: task.gpus for task in environment.tasks()}
    assert len(pins["worker-0"]) == len(pins["worker-1"]) == 1
    assert not set(pins["worker-0"]) & set(pins["worker-1"])
    assert seen_by_pid_1("worker-0") == (pins["worker-0"][0], None)
    assert seen_by_pid_1("worker-1") == (pins["worker-1"][0], None)
    for service in ("ps-0", "tf1", "tf2"):
        assert seen_by_pid_1(service) == ("void", "-1")


def test_a_run_from_request_to_collection(environment: ComposeEnvironment) -> None:
    environment.submit(request(environment, "first"))
    files = collect(environment, "first", follow=True)
    assert states(files) == dict.fromkeys(["ps-0", "worker-0", "worker-1"], "succeeded")
    assert json.loads(files["tasks/worker-1.jsonl"])["task_index"] == 1
    assert files["logs/worker-0.log"].startswith(b"a title \x1b]0;owned\x07 and half a line")
    # No collected byte is sent again.
    sizes = {path: len(data) for path, data in files.items()}
    again = {chunk.path for chunk in environment.stream("first", sizes, follow=False) if chunk}
    assert not again & {"tasks/worker-1.jsonl", "logs/worker-0.log"}
    assert [each.run_id for each in environment.runs()] == ["first"]
    # The terminal gets no control sequence.
    shown = list(environment.logs(["worker-0"], follow=False, tail=None))
    assert any(line.startswith("worker-0  | ") and "owned" in line for line in shown), shown
    assert not any("\x1b" in line or "\x07" in line for line in shown)


def test_a_second_run_is_refused_until_the_first_has_ended(
    environment: ComposeEnvironment, module_root: Path
) -> None:
    long = Request("long", RunSpec("long", "long.py"), environment.cluster_spec())
    environment.submit(long)
    with pytest.raises(LabError, match="run long is under way"):
        environment.submit(request(environment, "second"))
    environment.cancel("long", "enough")
    files = collect(environment, "long", follow=True)
    assert set(states(files).values()) == {"cancelled"}
    environment.submit(request(environment, "third", "--fail"))
    ended = states(collect(environment, "third", follow=True))
    assert ended == {"ps-0": "cancelled", "worker-0": "failed", "worker-1": "cancelled"}


def test_an_unknown_run_is_named(environment: ComposeEnvironment) -> None:
    with pytest.raises(LabError, match="no run 'nonesuch'"):
        collect(environment, "nonesuch", follow=True)


def test_a_closed_reader_leaves_no_process(environment: ComposeEnvironment) -> None:
    environment.submit(Request("left", RunSpec("long", "long.py"), environment.cluster_spec()))
    stream = environment.stream("left", {}, follow=True)
    assert next(stream) is not None
    assert readers(environment)
    stream.close()
    wait_for(lambda: not readers(environment), "the end of the reader, while the run goes on")
    environment.cancel("left", "enough")
    collect(environment, "left", follow=True)


def readers(environment: ComposeEnvironment) -> list[str]:
    """Processes inside the containers that bring a run home."""
    lines = [docker("top", each.id, "-o", "pid,args") for each in environment.inspect()]
    return [
        line for text in lines for line in text.splitlines() if "lab.task.probes.volume" in line
    ]


def test_a_task_that_lost_its_network_is_restarted(
    environment: ComposeEnvironment, module_root: Path
) -> None:
    interfaces = "import os; print(sorted(os.listdir('/sys/class/net')))"
    docker("restart", "--time", "1", f"{NAME}-tf2-1")
    assert inside("worker-1", interfaces) == "['lo']"
    health = ("inspect", "--format", "{{.State.Health.Status}}", f"{NAME}-worker-1-1")
    wait_for(lambda: docker(*health) == "unhealthy", "the health check sees the lost network")
    output: list[str] = []
    plan = place_on(module_root, "uuid")
    ComposeBackend().up(plan, root=module_root, notify=output.append)
    assert [line for line in output if line.startswith("restarting worker-1")]
    assert "eth" in inside("worker-1", interfaces)
    assert all(task.alive for task in environment.tasks())


def test_a_name_that_is_taken_is_refused(
    environment: ComposeEnvironment, module_root: Path, root: Path
) -> None:
    with pytest.raises(LabError, match="another directory"):
        ComposeBackend().up(place_on(module_root, "uuid"), root=root, notify=no_word)
    with pytest.raises(LabError, match="another config"):
        changed = DESCRIPTION.replace("2222", "2300")
        (root / "cluster.yaml").write_text(changed.format(name=NAME))
        cluster = load_cluster(root / "cluster.yaml")
        plan = place(cluster, take_inventory("none", cluster))
        ComposeBackend().up(plan, root=module_root, notify=no_word)
    assert all(task.alive for task in environment.tasks())


def test_a_boot_that_fails_leaves_nothing(
    image: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = place_on(root, "none", name="lab-e2e-failing")
    (root / "data").rmdir()
    with pytest.raises(LabError, match="data is missing"):
        ComposeBackend().up(plan, root=root, notify=no_word)
    assert left_behind(plan.name) == []
    (root / "data").mkdir()
    with pytest.raises(LabError, match="is not up after 0 s"):
        ComposeBackend(ready_s=0).up(plan, root=root, notify=no_word)
    assert left_behind(plan.name) == []

    # Whatever it is that ends it.
    def interrupt(line: str) -> None:
        if line.startswith("tf1 is up"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ComposeBackend().up(plan, root=root, notify=interrupt)
    assert left_behind(plan.name) == []


@pytest.fixture(scope="module")
def linked(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeEnvironment]:
    """An environment without GPUs, whose node tf2 has a link."""
    root = tmp_path_factory.mktemp("linked")
    (root / "scripts").mkdir()
    (root / "data").mkdir()
    plan = place_on(root, "none", name="lab-e2e-link")
    slow = replace(plan.nodes[1], link=Link(rate_bits=10_000_000))
    plan = replace(plan, nodes=(plan.nodes[0], slow))
    environment = ComposeBackend().up(plan, root=root, notify=no_word)
    yield environment
    environment.down(no_word)
    assert left_behind(plan.name) == []


def test_a_link_precedes_a_healthy_node(linked: ComposeEnvironment) -> None:
    containers = inspect(linked)
    # Only this pause container may change a network, its own.
    assert containers["tf2"]["Config"]["User"] == "0:0"
    (added,) = containers["tf2"]["HostConfig"]["CapAdd"]
    assert added.removeprefix("CAP_") == "NET_ADMIN"
    assert not containers["tf1"]["HostConfig"]["CapAdd"]
    code = """
from pyroute2 import IPRoute
with IPRoute() as route:
    print(sorted(each.get_attr("TCA_KIND") for each in route.get_qdiscs()))
"""
    for service, expected in (("tf2", True), ("worker-1", True), ("tf1", False)):
        kinds = docker("exec", f"{linked.project}-{service}-1", "python", "-c", code)
        assert ("tbf" in kinds) is expected, service


REACHED = """
import contextlib, errno, select, socket, sys
port, *addresses = sys.argv[1:]
waiting = {}
for address in addresses:
    six = ":" in address
    scope = socket.if_nametoindex("eth0") if address.startswith("fe80") else 0
    to = (address, int(port), 0, scope) if six else (address, int(port))
    for bound in (False, True):
        each = socket.socket(socket.AF_INET6 if six else socket.AF_INET)
        each.setblocking(False)
        if bound:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
        with contextlib.suppress(OSError):
            if each.connect_ex(to) == errno.EINPROGRESS:
                waiting[each] = address
while waiting and (ready := select.select([], list(waiting), [], 2)[1]):
    for each in ready:
        if each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
            print(waiting[each])
        del waiting[each]
socket.create_connection(("tf1", 2222)).close()
"""
"""Prints which addresses can be reached, also by sockets that ignore routes; reaches a node."""


@contextmanager
def listening_host(image: str) -> Iterator[list[str]]:
    """A port on which the engine's host listens, and all its addresses except the loopback's."""
    host = ("run", "--detach", "--network", "host", image, "python", "-c", HOST)
    listener = docker(*host)
    try:
        wait_for(lambda: "\n" in docker_output(listener), "the listener on the host")
        words = docker_output(listener).split()
        yield [each for each in words if not each.startswith("127.") and each != "::1"]
    finally:
        docker("rm", "--force", listener)


def reached(project: str, host: list[str]) -> set[str]:
    """The addresses of the host that worker-1 reaches; it must reach ps-0 on the other node."""
    server = "import socket, time; s = socket.create_server(('', 2222)); time.sleep(600)"
    docker("exec", "--detach", f"{project}-ps-0-1", "python", "-c", server)
    task = f"{project}-worker-1-1"
    return set(docker("exec", task, "python", "-c", REACHED, *host).split())


def test_tasks_cannot_reach_the_host(image: str, linked: ComposeEnvironment) -> None:
    (network,) = json.loads(docker("network", "inspect", f"{linked.project}_cluster"))
    (gateway,) = (each["Gateway"] for each in network["IPAM"]["Config"])
    with listening_host(image) as host:
        assert gateway in host
        assert reached(linked.project, host) == set()
        # A node that was restarted is open, and so this test could fail.
        for service in ("tf2", "worker-1"):
            docker("restart", "--time", "1", f"{linked.project}-{service}-1")
        assert gateway in reached(linked.project, host)
        linked.block_host(pytest.fail)
        assert reached(linked.project, host) == set()


def test_an_isolated_network_needs_no_block(image: str, root: Path) -> None:
    engine = Engine()
    if engine.major() < ISOLATES_SINCE:
        pytest.skip(f"isolated networks need Engine {ISOLATES_SINCE}")
    plan = place_on(root, "none", name="lab-e2e-isolated")
    file = root / "docker-compose.yml"
    file.write_text(render(plan, options=RenderOptions(network="isolated")))
    try:
        docker("compose", "--file", str(file), "up", "--detach", "--wait")
        with listening_host(image) as host:
            assert reached(plan.name, host) == set()
    finally:
        ComposeEnvironment(engine, plan.name).down(no_word)


def test_down_removes_only_labelled_resources(image: str, root: Path) -> None:
    plan = place_on(root, "none", name="lab-e2e-down")
    stranger = "lab-e2e-stranger"
    docker("volume", "create", "--label", f"com.docker.compose.project={plan.name}", stranger)
    try:
        environment = ComposeBackend().up(plan, root=root, notify=no_word)
        assert len(left_behind(plan.name)) > 2
        environment.down(no_word)
        assert left_behind(plan.name) == [stranger]
        assert ComposeBackend().find_any(plan.name) is None
        environment.down(no_word)
    finally:
        docker("volume", "rm", stranger)


@pytest.mark.parametrize(("flags", "code"), [("", 0), ("--fail", 1)])
def test_without_the_client(image: str, module_root: Path, flags: str, code: int) -> None:
    plan = place_on(module_root, "none", name="lab-e2e-helperless")
    file = module_root / "docker-compose.yml"
    file.write_text(render(plan))
    variables = {"LAB_EXPERIMENT": "async", "LAB_FLAGS": flags}
    done = compose_up(module_root, variables)
    try:
        assert done.returncode == code, done.stdout[-3000:]
        backend = ComposeBackend()
        assert backend.find(plan.name) is None
        # All containers have stopped: the run is read from the volume that they left.
        environment = backend.find_any(plan.name)
        assert environment is not None
        (run,) = environment.runs()
        files = collect(environment, run.run_id, follow=True)
        assert states(files)["worker-0"] == ("failed" if flags else "succeeded")
        name, text = environment.boot_file()
        assert (name, text) == ("docker-compose.yml", file.read_text())
    finally:
        ComposeEnvironment(backend._engine, plan.name).down(no_word)
    assert left_behind(plan.name) == []


def compose_up(root: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", "compose", "up", "--exit-code-from", "ps-0"],
        cwd=root,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
