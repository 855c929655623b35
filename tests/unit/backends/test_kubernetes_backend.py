"""The backend `kubernetes` with a small API server, whose pods are processes of this host."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from lab.backends.kubernetes import boot, status, volume
from lab.backends.kubernetes.api import Api, ApiError, Away, _refuse
from lab.backends.kubernetes.backend import KubernetesBackend
from lab.backends.kubernetes.environment import KubernetesEnvironment
from lab.backends.kubernetes.volume import PodVolume
from lab.backends.log_tail import merged_lines
from lab.backends.options import Value
from lab.backends.state import Busy
from lab.base.errors import InputError, LabError
from lab.cluster.placement.plan import Plan, PlannedNode, PlannedTask
from tests.support import kube, specs
from tests.support.cli import lab
from tests.support.engine import ROOT
from tests.support.kube import UNBOUND, Cluster, a_cluster
from tests.support.kubernetes_schema import VERSIONS, faults, objects_in

PLAN = Plan(
    name="mnist",
    mode="none",
    cluster_sha256="0" * 64,
    nodes=(PlannedNode("tf1"),),
    tasks=(PlannedTask("ps", 0, "tf1", 2222), PlannedTask("worker", 0, "tf1", 2223)),
)
CONFIG = """\
version: 1
name: mnist
nodes: {tf1: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf1]}}
"""
PROGRAM = """\
import json, os, helper
task = json.loads(os.environ["TF_CONFIG"])["task"]
print(helper.WORD, "from", task["type"], flush=True)
print("step=7 loss=0.5", flush=True)
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    with a_cluster(tmp_path / "cluster") as found:
        monkeypatch.setenv("KUBECONFIG", str(found.folder / "config"))
        yield found


def up(root: Path, **own: Value) -> KubernetesEnvironment:
    backend = KubernetesBackend({"flavour": "plain", **own})
    environment = backend.up(PLAN, root=root)
    assert isinstance(environment, KubernetesEnvironment)
    return environment


def failure(root: Path, **own: Value) -> str:
    with pytest.raises(LabError) as caught:
        up(root, **own)
    return str(caught.value)


def test_a_run_is_collected_and_nothing_is_left(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CONFIG)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "program.py").write_text(PROGRAM)
    (tmp_path / "own" / "helper.py").write_text("WORD = 'good morning'\n")
    words = ["run", "own/program.py", "--backend", "kubernetes", "-o", "flavour=plain", "--json"]
    words += ["--record", r"step=(?P<step>\d+) loss=(?P<loss>\S+)"]
    done = lab(tmp_path, *words, KUBECONFIG=str(cluster.folder / "config"))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["state"], summary["backend"]) == ("succeeded", "kubernetes")
    (run,) = (tmp_path / "runs").glob("*-program-*")
    assert (run / "logs" / "worker-0.log").read_text().startswith("good morning from worker\n")
    assert '"loss": 0.5' in (run / "tasks" / "worker-0.jsonl").read_text()
    assert "kind: Job" in (run / "cluster.k8s.yaml").read_text()
    assert cluster.left() == []


def test_the_pods_of_a_jobset_know_their_tasks(cluster: Cluster, tmp_path: Path) -> None:
    environment = up(tmp_path, flavour="jobset")
    assert [(each.task, each.alive) for each in environment.tasks()] == [
        ("ps-0", True),
        ("worker-0", True),
    ]
    assert environment.cluster_spec()["worker"] == ["lab-mnist-worker-0-0.lab-mnist:2223"]
    lines = [*environment.logs(["worker-0"], follow=False, tail=2)]
    assert lines[0].startswith("worker-0  | ")
    assert " lab: worker-0 of mnist runs on node-1, address lab-" in lines[0]
    environment.down()
    assert cluster.left() == []


def test_a_boot_names_the_queue_in_which_it_waits(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    up(tmp_path, flavour="jobset", queue="team.gpus").down()
    assert "ps-0: it is waiting in the Kueue queue team.gpus" in caplog.messages
    assert cluster.left() == []


def test_the_role_of_the_page_suffices(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs/how-to/kubernetes.md").read_text()
    found = re.search(r"```yaml\n(apiVersion: rbac.*?)```", page, re.DOTALL)
    assert found
    (role,) = objects_in(found[1])
    assert faults(role, VERSIONS[-1]) == []
    allowed = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    asked = set()
    serve = kube._Handler._serve

    def recorded(handler: kube._Handler) -> None:
        url = urlsplit(handler.path)
        if found := re.fullmatch(
            r"/apis?(?:/([^/]+))?/[^/]+/namespaces/[^/]+/([^/]+)(?:/[^/]+)?(?:/([^/]+))?", url.path
        ):
            group, kind, part = found.groups("")
            verb = "watch" if "watch=" in url.query else "get" if part else "list"
            verb = {"POST": "create", "DELETE": "delete"}.get(handler.command, verb)
            asked.add((group, f"{kind}/{part}" if part else kind, verb))
        serve(handler)

    monkeypatch.setattr(kube._Handler, "_serve", recorded)
    for flavour in ("jobset", "plain"):
        environment = up(tmp_path, flavour=flavour)
        assert [*environment.logs(["ps-0"], follow=False, tail=1)]
        assert next(environment.api.watch_pods({"lab.project": "mnist"}))
        assert environment.api.list("Event", {}) == []
        environment.down()
    assert {("", "configmaps", "create"), ("", "pods/exec", "get"), ("", "pods", "watch")} <= asked
    assert asked <= allowed


def test_a_boot_names_why_a_pod_never_starts(cluster: Cluster, tmp_path: Path) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "lab:cpu"'}

    def refuse(pod: dict[str, Any]) -> None:
        if "lab.task" in pod["metadata"]["labels"]:
            pod["status"]["containerStatuses"] = [{"state": {"waiting": waiting}}]

    cluster.before_start = refuse
    error = failure(tmp_path)
    assert 'Pending: ImagePullBackOff: Back-off pulling image "lab:cpu"' in error
    assert cluster.left() == []


def test_a_quota_that_is_reached_is_named(cluster: Cluster, tmp_path: Path) -> None:
    cluster.quota = 'pods "lab-mnist-ps-0-" is forbidden: exceeded quota: course'
    assert failure(tmp_path).startswith(f"ps-0 has no pod: {cluster.quota}; see docs")
    assert cluster.left() == []
    cluster.quota = ""
    up(tmp_path).down()  # the event of the first environment is still there


def test_a_pod_that_ends_is_reported_with_its_cause(cluster: Cluster, tmp_path: Path) -> None:
    environment = up(tmp_path)
    cluster.kill("worker-0")
    process = cluster.processes[cluster.pod("worker-0")["metadata"]["name"]]
    process.wait()
    ps, worker = environment.tasks()
    assert ps.alive
    assert (worker.alive, worker.detail) == (
        False,
        "Failed on node-1: OOMKilled: exit code 137",
    )
    cluster.kill("ps-0")
    cluster.processes[cluster.pod("ps-0")["metadata"]["name"]].wait()
    assert not environment.is_up
    with pytest.raises(LabError, match=r"has stopped: ps-0: Failed .*OOMKilled"):
        environment._check_up(set(), {})
    environment.down()
    assert cluster.left() == []


def test_only_the_own_directory_of_a_claim_is_removed(cluster: Cluster, tmp_path: Path) -> None:
    other = cluster.folder / "volume" / "others" / "thesis"
    other.parent.mkdir()
    other.write_text("mine")
    environment = up(tmp_path, claim="shared")
    assert ("PersistentVolumeClaim", "shared") not in cluster.objects
    assert len([*(cluster.folder / "volume").iterdir()]) == 2
    environment.down()
    assert cluster.left() == [str(other.parent), str(other)]


def test_objects_of_another_owner_stay(cluster: Cluster, tmp_path: Path) -> None:
    labels = {"lab.project": "mnist", "lab.owner": "somebody"}
    cluster.create("Service", {"metadata": {"name": "theirs", "labels": labels}, "spec": {}})
    up(tmp_path).down()
    assert cluster.left() == ["Service/theirs"]
    cluster.create("Service", {"metadata": {"name": "lab-mnist", "labels": labels}, "spec": {}})
    assert 'creating Service lab-mnist: Service "lab-mnist" already exists' in failure(tmp_path)
    assert cluster.left() == ["Service/theirs", "Service/lab-mnist"]
    metadata = {"name": "lab-mnist-volume", "labels": labels}
    spec = {"containers": [{"command": ["true"], "env": []}]}
    cluster.before_start = lambda pod: pod["status"].update(reason="theirs")
    cluster.create("Pod", {"metadata": metadata, "spec": spec})
    assert "creating Pod lab-mnist-volume: " in failure(tmp_path)
    assert "creating Pod lab-mnist-volume: " in failure(tmp_path, claim="shared")
    assert len(cluster.left()) == 3


def test_a_cluster_without_jobset_is_named(cluster: Cluster, tmp_path: Path) -> None:
    cluster.missing.add("JobSet")
    assert "without JobSet, use -o flavour=plain" in failure(tmp_path, flavour="jobset")
    assert cluster.left() == []


def test_an_image_with_other_code_is_refused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot, "digest", lambda: "another")
    with pytest.raises(InputError, match="image lab:cpu has a different version of lab's code"):
        up(tmp_path)
    assert cluster.left() == []


def test_a_volume_that_is_not_writable_is_named(cluster: Cluster, tmp_path: Path) -> None:
    (cluster.folder / "volume").rmdir()
    (cluster.folder / "volume").touch()  # so that no user can make a directory in it
    error = failure(tmp_path)
    assert "the pod of the run volume, lab-mnist-volume: Failed on node-1: Error" in error
    assert "its last lines: mkdir: cannot create directory" in error
    assert [name for _, name in cluster.objects] == []


def test_without_a_shared_volume_all_pods_are_on_one_node(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.modes = ("ReadWriteOnce",)
    up(tmp_path, nodes="one").down()
    monkeypatch.setattr(volume, "START_S", 1.0)
    error = failure(tmp_path)
    assert f"Pending: {UNBOUND}; if only one node can mount the volumes here" in error
    assert error.endswith("use -o nodes=one")
    cluster.modes = ()
    assert failure(tmp_path, nodes="one").endswith("see docs/how-to/kubernetes.md, Problems")
    assert cluster.left() == []


def test_requests_and_their_files_reach_the_run_volume(cluster: Cluster, tmp_path: Path) -> None:
    environment = up(tmp_path)
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "model-7").write_bytes(bytes(range(256)) * 1000)  # more than one frame
    spec = {"ps": ["a:1"], "worker": ["b:1"]}
    environment.submit(specs.request("r1", "test", spec, program="none.py"), {"checkpoints": saved})
    (own,) = (cluster.folder / "volume").iterdir()
    copied = own / "r1" / "checkpoints" / "model-7"
    assert copied.read_bytes() == (saved / "model-7").read_bytes()
    assert [each.run_id for each in environment.runs()] == ["r1"]
    with pytest.raises(LabError, match="no run 'r2' on this volume"):
        environment.cancel("r2", "why")
    environment.mark_collected("r1", "/home/ada/runs")
    assert environment.collected() == {"r1": "/home/ada/runs"}
    environment.down()
    assert cluster.left() == []


def test_an_environment_outlasts_a_second_boot_its_server_and_its_volume_pod(
    cluster: Cluster, tmp_path: Path
) -> None:
    environment = up(tmp_path)
    assert failure(tmp_path) == (
        "the kubernetes environment 'mnist' already exists, in course; remove it with"
        " `lab down mnist`"
    )
    cluster.answers = False
    with pytest.raises(LabError, match="listing Pods: the API server does not answer"):
        environment.tasks()
    cluster.answers = True
    assert environment.is_up
    cluster.delete("Pod", "lab-mnist-volume", None)
    assert environment.runs() == []
    cluster.end("lab-mnist-volume", EVICTED)
    assert environment.collected() == {}
    environment.down()
    assert cluster.left() == []


def test_a_volume_pod_that_is_being_deleted_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(volume, "POLL_S", 0.0)
    manifest = {"metadata": {"name": "v", "labels": {}}, "spec": {"nodeName": "node-1"}}
    deleted = {**manifest["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    dying = {**manifest, "metadata": deleted, "status": {"phase": "Failed"}}
    running = {"phase": "Running", "containerStatuses": [{"started": True}]}
    lists = iter([[dying], [], [{**manifest, "status": running}]])
    created: list[object] = []
    api = SimpleNamespace(list=lambda *_: next(lists), create=created.append)
    assert PodVolume(api, manifest, own_claim=False).start() == "v"
    assert created == [manifest]


def test_a_kept_run_volume_is_used_again(cluster: Cluster, tmp_path: Path) -> None:
    up(tmp_path).down(keeps=lambda: True)
    kept = [name for kind, name in cluster.objects if kind == "PersistentVolumeClaim"]
    assert kept == ["lab-mnist-runs"]
    assert len(cluster.objects) == 1
    found = KubernetesBackend().find_any("mnist")
    assert not found.is_up
    up(tmp_path).down()
    assert cluster.left() == []


def test_without_access_the_backend_gives_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert KubernetesBackend().unavailable_reason() == (
        f"there is no kubeconfig {tmp_path / 'config'}; set KUBECONFIG"
    )
    (tmp_path / "config").touch()
    monkeypatch.setattr("lab.base.shipped.find_spec", lambda _: None)
    reason = str(KubernetesBackend().unavailable_reason())
    assert reason.startswith("this needs kubernetes, a package of the extra `kubernetes`; install")


def test_a_call_gives_all_output_its_exit_code_and_no_silence(cluster: Cluster) -> None:
    labels = {"lab.task": "worker-0"}
    pod = {"metadata": {"name": "p", "labels": labels}, "spec": {"containers": [{"env": []}]}}
    cluster.objects["Pod", "p"] = pod
    api = Api()

    def call(script: str, stdin: bytes = b"", **limits: float) -> bytes:
        return b"".join(api.call("p", ["sh", "-c", script], stdin, **limits))

    # Both streams at the same time, and more of it than fits into a frame.
    numbers = "\n".join(map(str, range(1, 50_001))).encode() + b"\n"
    assert call("seq 1 50000; seq 1 50000 >&2") == numbers
    assert call("head -c 200000", bytes(200_000)) == bytes(200_000)
    with pytest.raises(LabError, match=r"calling sh -c .*: no such thing; see `lab logs`"):
        call("echo no such thing >&2; exit 7")
    with pytest.raises(Busy, match="another run"):
        call("echo another run >&2; exit 3")
    with pytest.raises(Away, match=r"no output for 0\.3 s"):
        call("echo a; sleep 5", within_s=0.3)
    assert next(api.watch_pods(labels))["metadata"]["name"] == "p"


@pytest.mark.parametrize(
    ("code", "hint"),
    [(401, "renew the credentials"), (403, "ask for these rights"), (422, "kubectl get events")],
)
def test_a_refusal_has_a_hint(code: int, hint: str) -> None:
    with pytest.raises(ApiError, match=rf"creating Job a: no way; .*{hint}"):
        _refuse("creating Job a", code, b'{"message": "no way"}')


FEW_GPUS = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}


@pytest.mark.parametrize(
    ("pod", "detail"),
    [
        ({}, "Pending"),
        ({"conditions": [UNSCHEDULABLE | {"message": FEW_GPUS}]}, f"Pending: {FEW_GPUS}"),
        (EVICTED, "Failed: Evicted: low on memory"),
    ],
)
def test_the_state_of_a_pod_in_words(pod: dict[str, Any], detail: str) -> None:
    assert status.detail({"metadata": {}, "spec": {}, "status": pod}) == detail


def test_lines_of_several_pods_are_whole() -> None:
    outputs = {"ps-0": iter([b"a\nb", b"c\n"]), "worker-0": iter([b"\x1b[2Jlast"])}
    lines = sorted(merged_lines(outputs))
    assert lines == ["ps-0      | a", "ps-0      | bc", r"worker-0  | \x1b[2Jlast"]


@pytest.mark.parametrize(
    ("metadata", "pod", "by_kubernetes"),
    [
        ({"deletionTimestamp": "2026-11-29T16:00:00Z"}, {"phase": "Running"}, True),
        ({}, EVICTED, True),
        ({}, {"phase": "Failed"}, False),  # its program has failed
        ({}, {"phase": "Running"}, False),
    ],
)
def test_who_ends_a_pod(
    metadata: dict[str, Any], pod: dict[str, Any], *, by_kubernetes: bool
) -> None:
    found = status.is_ended_by_kubernetes({"metadata": metadata, "spec": {}, "status": pod})
    assert found is by_kubernetes
