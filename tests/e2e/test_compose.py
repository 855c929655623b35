"""Environments of real containers, with programs that need no TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.compose import readiness
from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.render import render
from lab.backends.engine.client import Engine
from lab.backends.rendered_file import Rendering
from lab.base.errors import LabError
from lab.base.image_digest import digest
from lab.base.log import shown_by
from lab.cluster.config import load_cluster
from lab.cluster.gpu import take_inventory
from lab.cluster.placement.place import place
from lab.cluster.placement.plan import Link, PlannedRun
from lab.protocol.volume import Request, RunSpec
from tests.support.agents import wait_for
from tests.support.docker import (
    DESCRIPTION,
    NAME,
    docker,
    inspect,
    left_behind,
    listening_host,
    place_on,
    reached_by_worker,
)
from tests.support.volumes import collected, states

pytestmark = pytest.mark.engine


# A training program as the agents see it: it prints, and it ends.
PROGRAM = """\
import json, os, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
if task["type"] == "ps":
    time.sleep(600)
print("lab kind=start run=%s job_name=worker task_index=%d seq=0" % (
    os.path.basename(os.environ["LAB_RUN_DIR"]), task["index"]))
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
    stranger = "lab-e2e-stranger"  # compose's label alone does not make it one of lab's
    docker("volume", "create", "--label", f"com.docker.compose.project={plan.name}", stranger)
    environment = ComposeBackend().up(plan, root=module_root)
    yield environment
    try:
        assert len(left_behind()) > 2
        environment.down()
        assert left_behind() == [stranger]
        assert ComposeBackend().find_any(plan.name) is None
        environment.down()
    finally:
        docker("volume", "rm", stranger)


def test_every_task_is_up_on_its_node_and_found_from_anywhere(
    environment: ComposeEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = environment.tasks()
    assert [(task.task, task.node, task.address, task.alive) for task in tasks] == [
        ("ps-0", "tf1", "tf1:2222", True),
        ("worker-0", "tf1", "tf1:2223", True),
        ("worker-1", "tf2", "tf2:2222", True),
    ]
    assert {task.detail for task in tasks} == {"running (healthy)"}
    monkeypatch.chdir(tmp_path)
    found = ComposeBackend().find(NAME)
    assert (found.tasks(), found.sources_sha256) == (tasks, digest())
    assert NAME in [each.project for each in ComposeBackend().all()]
    assert ComposeBackend().find("no-such-environment") is None


def test_actual_settings(environment: ComposeEnvironment, module_root: Path) -> None:
    name, text = environment.boot_file()
    paths = Rendering.at(module_root, module_root / "cluster.yaml", module_root)
    expected = render(place_on(module_root, "uuid"), rendering=paths)
    assert (name, text) == ("docker-compose.yml", expected)
    assert environment.provenance()["image"].startswith("sha256:")
    # Without its file, or with one of another config, the engine describes the containers.
    file = Path(environment.inspect()[0].file)
    file.write_text(text.replace(environment.cluster_sha256, "of another config"))
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


def test_a_run_from_request_to_collection(environment: ComposeEnvironment) -> None:
    spec = RunSpec("program", "program.py")
    environment.submit(Request("first", spec, environment.cluster_spec()))
    files = collected(environment, "first")
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


def test_a_closed_reader_leaves_no_process(environment: ComposeEnvironment) -> None:
    environment.submit(Request("left", RunSpec("long", "long.py"), environment.cluster_spec()))
    stream = environment.stream("left", {}, follow=True)
    assert next(stream) is not None
    assert readers(environment)
    assert isinstance(stream, Generator)
    stream.close()
    wait_for(lambda: not readers(environment), "the end of the reader, while the run goes on")
    environment.cancel("left", "enough")
    collected(environment, "left")


def readers(environment: ComposeEnvironment) -> list[str]:
    lines = [docker("top", each.id, "-o", "pid,args") for each in environment.inspect()]
    return [line for text in lines for line in text.splitlines() if "lab.protocol.volume" in line]


def test_a_task_that_lost_its_network_is_restarted(
    environment: ComposeEnvironment, module_root: Path, notices: list[str]
) -> None:
    interfaces = "import os; print(sorted(os.listdir('/sys/class/net')))"
    docker("restart", "--time", "1", f"{NAME}-tf2-1")
    assert inside("worker-1", interfaces) == "['lo']"
    health = ("inspect", "--format", "{{.State.Health.Status}}", f"{NAME}-worker-1-1")
    wait_for(lambda: docker(*health) == "unhealthy", "the health check sees the lost network")
    plan = place_on(module_root, "uuid")
    ComposeBackend().up(plan, root=module_root)
    assert [line for line in notices if line.startswith("restarting worker-1")]
    assert "eth" in inside("worker-1", interfaces)
    assert all(task.alive for task in environment.tasks())


def test_a_name_that_is_taken_is_refused(
    environment: ComposeEnvironment, module_root: Path, root: Path
) -> None:
    with pytest.raises(LabError, match="another directory"):
        ComposeBackend().up(place_on(module_root, "uuid"), root=root)
    with pytest.raises(LabError, match="another config"):
        changed = DESCRIPTION.replace("2222", "2300")
        (root / "cluster.yaml").write_text(changed.format(name=NAME))
        cluster = load_cluster(root / "cluster.yaml")
        plan = place(cluster, take_inventory("none", cluster))
        ComposeBackend().up(plan, root=module_root)
    assert all(task.alive for task in environment.tasks())


def test_a_boot_that_fails_leaves_nothing(
    image: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = place_on(root, "none", name="lab-e2e-failing")
    (root / "data").rmdir()
    with pytest.raises(LabError, match=r"bind source path does not exist: .*data"):
        ComposeBackend().up(plan, root=root)
    assert left_behind(plan.name) == []
    (root / "data").mkdir()
    with pytest.raises(LabError, match="is not up after 0 s"):
        monkeypatch.setattr(readiness, "READY_S", 0)
        ComposeBackend().up(plan, root=root)
    assert left_behind(plan.name) == []
    monkeypatch.undo()

    # Whatever it is that ends it.
    def interrupt(line: str) -> None:
        if line.startswith("tf1 is up"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), shown_by(interrupt):
        ComposeBackend().up(plan, root=root)
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
    environment = ComposeBackend().up(plan, root=root)
    yield environment
    environment.down()
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


def test_tasks_cannot_reach_the_host(image: str, linked: ComposeEnvironment) -> None:
    (network,) = json.loads(docker("network", "inspect", f"{linked.project}_cluster"))
    (gateway,) = (each["Gateway"] for each in network["IPAM"]["Config"])
    with listening_host(image) as host:
        (own,) = (each for each in host if each.startswith(f"{gateway}:"))
        assert reached_by_worker(linked.project, *host) == set()
        # A node that was restarted is open, and so this test could fail.
        for service in ("tf2", "worker-1"):
            docker("restart", "--time", "1", f"{linked.project}-{service}-1")
        assert own in reached_by_worker(linked.project, *host)
        with shown_by(pytest.fail):
            linked.block_host()
        assert reached_by_worker(linked.project, *host) == set()


@pytest.mark.parametrize(("flags", "code"), [("", 0), ("--fail", 1)])
def test_without_the_client(image: str, module_root: Path, flags: str, code: int) -> None:
    plan = place_on(module_root, "none", name="lab-e2e-clientless")
    file = module_root / "docker-compose.yml"
    file.write_text(
        render(plan, rendering=Rendering(run=PlannedRun(("async", *flags.split()), {}, ())))
    )
    done = subprocess.run(
        ["docker", "compose", "up", "--exit-code-from", "run"],
        cwd=module_root,
        env={**os.environ, "LAB_ONCE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    backend = ComposeBackend()
    try:
        assert done.returncode == code, done.stdout[-3000:]
        assert backend.find(plan.name) is None
        # All containers have stopped: the run is read from the volume that they left.
        environment = backend.find_any(plan.name)
        (run,) = environment.runs()
        files = collected(environment, run.run_id)
        assert states(files)["worker-0"] == ("failed" if flags else "succeeded")
        assert environment.boot_file() == ("docker-compose.yml", file.read_text())
    finally:
        ComposeEnvironment(Engine(), plan.name).down()
    assert left_behind(plan.name) == []
