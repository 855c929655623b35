"""`lab render --target kubernetes`: the objects, their schemas, and what pods cannot have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lab.backends.kubernetes import NAME as KUBERNETES
from lab.backends.kubernetes.status import task_of
from lab.backends.rendered_file import RenderOptions
from lab.base.errors import ConfigError, InputError
from lab.base.units import MIB
from lab.cluster.config import load_cluster
from lab.cluster.placement.plan import Plan
from lab.protocol.runtimes import NO_GPU
from lab.runner.planning import make_plan
from tests.golden.cases import FILES, HERE, accepted, rendered_files
from tests.support.cli import Cli
from tests.support.commands import Done, run_command
from tests.support.engine import ROOT
from tests.support.kubernetes_schema import (
    INDEX,
    VERSIONS,
    Object,
    faults,
    objects_in,
    pods_in,
    templates_in,
    violations,
)
from tests.support.rendering import render_file

CLUSTER = """\
version: 1
name: on
nodes:
  tf1: {cpus: 1.5, memory: 1GiB, shm: 2GiB}
  tf2: {cpus: 3, gpus: 2}
  tf3: {cpus: 3, gpus: 1}
jobs: {worker: {on: [tf2, tf3]}, ps: {on: [tf1, tf1]}}
run: {experiment: async, flags: {epochs: 5}}
"""
LINK, SHARE = "slow-link", "book"
CONFIGS = [*sorted((ROOT / "clusters").glob("*.yaml")), ROOT / "cluster.yaml"]
SHIPPED = [each for each in CONFIGS if each.stem not in {LINK, SHARE}]
ACCEPTED = accepted(KUBERNETES)
OTHERS = [each for each in ACCEPTED if each.stem not in {"default", "run"}]
CASES = [(source, name) for source in ACCEPTED for name in FILES[KUBERNETES]]

Golden = tuple[Plan, list[Object]]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rendered(path: Path = Path("cluster.yaml"), run: str = "", **own: str) -> list[dict[str, Any]]:
    return objects_in(render_file(path, RenderOptions("auto", run=run, own=own), target=KUBERNETES))


def one(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (only,) = [each for each in found if each["kind"] == kind]
    return only


def pods(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: each["spec"] for made in found for name, each in templates_in(made)}


def environ(pod: dict[str, Any], found: Sequence[Object] = ()) -> dict[str, str]:
    """The variables of a pod, with those of the ConfigMap among these objects."""
    (container,) = pod["containers"]
    names = {each["configMapRef"]["name"] for each in container["envFrom"]}
    shared = [each for each in found if each["kind"] == "ConfigMap"]
    assert [each for each in shared if each["metadata"]["name"] not in names] == []
    own = {each["name"]: each.get("value", "") for each in container["env"]}
    return {name: text for each in shared for name, text in each["data"].items()} | own


@cache
def planned(source: Path, name: str) -> Golden:
    plan = make_plan(load_cluster(source), "auto", backend=KUBERNETES).plan
    return plan, objects_in(rendered_files(source, KUBERNETES)[name])


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].stem}-{case[1]}")
def golden(request: pytest.FixtureRequest) -> Golden:
    """A config of `tests/golden`; most of them have no golden files for Kubernetes."""
    return planned(*request.param)


def task_pods(found: list[Object]) -> dict[str, tuple[str, Object]]:
    made = [(task_of(pod), host, pod) for each in found for host, pod in pods_in(each)]
    tasks = {task: (host, pod) for task, host, pod in made if task}
    assert len(tasks) == len([task for task, _, _ in made if task])
    return tasks


@pytest.mark.parametrize("flavour", ["jobset", "plain"])
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_config_fits_the_schemas(path: Path, flavour: str) -> None:
    assert_accepted(rendered(path, flavour=flavour))


def test_every_golden_config_fits_the_schemas(golden: Golden) -> None:
    assert_accepted(golden[1])


def assert_accepted(found: list[Object]) -> None:
    for version in (VERSIONS[0], VERSIONS[-1]):
        assert [fault for each in found for fault in faults(each, version)] == []
    assert [broken for pod in pods(found).values() for broken in violations(pod)] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_accepts_all_kinds_of_objects(version: str) -> None:
    found = [*rendered(queue="gpus", nodes="one"), *rendered(flavour="plain")]
    assert {each["kind"] for each in found} == {
        *("ConfigMap", "Job", "JobSet", "NetworkPolicy", "PersistentVolumeClaim", "Service")
    }
    assert [fault for each in found for fault in faults(each, version)] == []


def test_the_cluster_spec_has_the_hosts_of_the_pods(golden: Golden) -> None:
    plan, found = golden
    hosts = {task: host for task, (host, _) in task_pods(found).items()}
    assert hosts.keys() == {task.name for task in plan.tasks}
    spec: dict[str, list[str]] = {}
    for task in plan.tasks:
        spec.setdefault(task.job, []).append(f"{hosts[task.name]}:{task.port}")
    for pod in pods(found).values():
        assert json.loads(environ(pod, found)["LAB_CLUSTER"]) == spec


def test_each_pod_has_the_variables_of_its_task(golden: Golden) -> None:
    plan, found = golden
    tasks = {task.name: task for task in plan.tasks}
    for name, (_, pod) in task_pods(found).items():
        gpus = ",".join(map(str, range(len(tasks[name].gpus))))
        index = pod["metadata"]["labels"].get(INDEX, "")
        variables = environ(pod["spec"], found)
        assert variables.pop("LAB_TASK").replace("$(TASK_INDEX)", index) == name
        for each in ("LAB_CLUSTER", "LAB_NODE", "TASK_INDEX"):
            variables.pop(each, None)
        assert variables == {
            **{"LAB_PROJECT": plan.name, "LAB_RUNTIME": plan.runtime},
            **{"LAB_RUNS": f"/runs/{plan.name}", "LAB_CLOCK": f"/runs/{plan.name}"},
            **{"LAB_SCRIPTS": "/lab/scripts", "LAB_DATA": "/lab/data"},
            "CUDA_VISIBLE_DEVICES": gpus or "-1",
            **({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if gpus else {"NVIDIA_VISIBLE_DEVICES": "void"}),
        }


def test_each_pod_has_the_size_of_its_task(golden: Golden) -> None:
    plan, found = golden
    by_name = task_pods(found)
    for task in plan.tasks:
        expected: dict[str, str | int] = {}
        if task.cpus is not None:
            expected["cpu"] = f"{task.cpus * 1000:.0f}m"
        if task.memory_bytes is not None:
            expected["memory"] = f"{task.memory_bytes / MIB:.0f}Mi"
        if task.gpus:
            expected["nvidia.com/gpu"] = len(task.gpus)
        (container,) = by_name[task.name][1]["spec"]["containers"]
        assert container["resources"].get("limits", {}) == expected
        least = {"cpu": "100m", "memory": "256Mi"}
        assert container["resources"]["requests"] == least | expected


def test_each_pod_has_the_shared_memory_of_its_node() -> None:
    Path("cluster.yaml").write_text(CLUSTER)
    sizes = {
        task: shm["emptyDir"]
        for task, (_, pod) in task_pods(rendered()).items()
        for shm in pod["spec"]["volumes"]
        if shm["name"] == "shm"
    }
    assert {task: shm["sizeLimit"] for task, shm in sizes.items()} == {
        **{"ps-0": "2048Mi", "ps-1": "2048Mi"},
        **{"worker-0": "1024Mi", "worker-1": "1024Mi"},
    }
    assert {shm["medium"] for shm in sizes.values()} == {"Memory"}


@pytest.mark.parametrize("source", ACCEPTED, ids=lambda path: path.stem)
def test_the_image_has_cuda_if_a_task_has_gpus(source: Path) -> None:
    plan, found = planned(source, "jobset.yml")
    images = {pod["containers"][0]["image"] for pod in pods(found).values()}
    assert images == {"lab:cuda" if plan.has_gpus else "lab:cpu"}


@pytest.mark.parametrize("name", FILES[KUBERNETES])
@pytest.mark.parametrize("source", OTHERS, ids=lambda path: path.stem)
def test_nothing_else_depends_on_the_config(source: Path, name: str) -> None:
    """A file of each flavour is in `tests/golden/good`."""
    assert common(*planned(source, name)) == common(*planned(HERE / "good/default.yaml", name))


def common(plan: Plan, found: list[Object]) -> set[str]:
    """What objects and templates say, except for what the plan decides."""
    parts = deepcopy(found)
    for made in [*parts]:
        for _, template in templates_in(made):
            template["spec"].pop("hostname", None)
            template["spec"]["containers"][0] |= {"env": [], "resources": {}}
            for label in ("lab.job", "lab.task"):
                template["metadata"]["labels"].pop(label, None)
        if made["kind"] == "Job":
            made["metadata"].pop("name")
        made.pop("data", None)
        for each in made.get("spec", {}).pop("replicatedJobs", []):
            job = each["template"]["spec"]
            assert job.pop("completions") == job.pop("parallelism")
            parts.append({**each, "name": "", "dependsOn": []})
    text = "\n".join(map(json.dumps, parts))
    for old, new in (
        (plan.cluster_sha256, "SHA"),
        (f'"{plan.name}"', '"NAME"'),
        (f'"lab-{plan.name}', '"lab-NAME'),
        ("lab:cuda", "lab:cpu"),
    ):
        text = text.replace(old, new)
    return set(text.splitlines())


def test_tasks_of_one_size_are_one_replicated_job_and_others_have_their_own() -> None:
    found = rendered()
    made = one(found, "JobSet")
    jobs = {each["name"]: each for each in made["spec"]["replicatedJobs"]}
    assert [*jobs] == ["ps", "worker-0", "worker-1", "run"]
    assert jobs["ps"]["template"]["spec"]["completions"] == 2
    assert environ(pods([made])["ps"])["LAB_TASK"] == "ps-$(TASK_INDEX)"
    assert environ(pods([made])["worker-1"])["LAB_TASK"] == "worker-1"
    assert json.loads(one(found, "ConfigMap")["data"]["LAB_CLUSTER"]) == {
        "ps": ["lab-on-ps-0-0.lab-on:2222", "lab-on-ps-0-1.lab-on:2223"],
        "worker": ["lab-on-worker-0-0-0.lab-on:2222", "lab-on-worker-1-0-0.lab-on:2222"],
    }
    waits = {
        name: [one["name"] for one in each.get("dependsOn", [])] for name, each in jobs.items()
    }
    assert waits == {"ps": [], "worker-0": ["ps"], "worker-1": ["ps"], "run": []}


def test_the_policy_permits_only_the_own_pods_and_dns() -> None:
    policy = one(rendered(), "NetworkPolicy")["spec"]
    own = {"podSelector": {"matchLabels": {"lab.project": "on"}}}
    assert policy["podSelector"] == own["podSelector"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"from": [own]}]
    first, dns, openshift = policy["egress"]
    assert first == {"to": [own]}
    # Anywhere: NodeLocal DNS is a process of the node, and no pod of a namespace.
    assert dns == {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
    (servers,) = openshift["to"]
    assert servers["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "openshift-dns"
    }
    assert {each["port"] for each in openshift["ports"]} == {5353}
    for pod in [each for made in rendered() for _, each in templates_in(made)]:
        assert pod["metadata"]["labels"]["lab.project"] == "on"


@pytest.mark.parametrize("flavour", ["jobset", "plain"])
def test_each_pod_can_be_on_the_node_of_the_others(flavour: str) -> None:
    found = rendered(flavour=flavour, nodes="one")
    assert one(found, "PersistentVolumeClaim")["spec"]["accessModes"] == ["ReadWriteOnce"]
    for pod in [each for made in found for _, each in templates_in(made)]:
        (term,) = pod["spec"]["affinity"]["podAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        # Otherwise, the first pod would wait for another one.
        assert term["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    several = rendered(flavour=flavour)
    assert one(several, "PersistentVolumeClaim")["spec"]["accessModes"] == ["ReadWriteMany"]
    assert [pod for pod in pods(several).values() if "affinity" in pod] == []


def test_a_run_ends_the_agents_and_decides_the_success() -> None:
    made = one(rendered(), "JobSet")
    assert made["spec"]["successPolicy"]["targetReplicatedJobs"] == ["run"]
    assert environ(pods([made])["run"])["LAB_RUN"] == "async --epochs=5"
    assert pods([made])["ps"]["containers"][0]["command"][-1].endswith("lab.task.agent --once")
    waits = one(rendered(run="none"), "JobSet")
    assert "successPolicy" not in waits["spec"]
    assert pods([waits])["ps"]["containers"][0]["command"][-1].endswith("lab.task.agent")


def test_the_cluster_is_in_a_file_once() -> None:
    for flavour in ("jobset", "plain"):
        found = rendered(flavour=flavour)
        assert json.dumps(found).count("lab-on:2223") == 1
        for pod in pods(found).values():
            assert (
                environ(pod, found)["LAB_CLUSTER"] == one(found, "ConfigMap")["data"]["LAB_CLUSTER"]
            )


def test_the_pod_of_a_run_has_no_gpus_and_requests_little() -> None:
    for name, flavour in (("run", "jobset"), ("lab-on-run", "plain")):
        pod = pods(rendered(flavour=flavour))[name]
        assert environ(pod).items() >= NO_GPU.items()
        assert pod["containers"][0]["resources"] == {"requests": {"cpu": "100m", "memory": "256Mi"}}


def test_a_run_waits_for_its_agents_with_a_deadline(tmp_path: Path) -> None:
    _, _, command = pods(rendered())["run"]["containers"][0]["command"]
    for task in ("ps-0", "ps-1", "worker-0"):
        (tmp_path / "agents").mkdir(exist_ok=True)
        (tmp_path / "agents" / f"{task}.json").touch()
    (tmp_path / "python").write_text("#!/bin/sh\necho $*\n")
    (tmp_path / "python").chmod(0o755)

    def run(script: str) -> Done:
        variables = {"LAB_RUNS": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
        return run_command(["sh", "-c", script], env=variables)

    assert "left=3600\n" in command  # seconds
    late = run(command.replace("left=3600", "left=1"))
    assert (late.returncode, late.stdout) == (1, "")
    assert late.stderr.startswith("error: worker-1 did not start within an hour; see")
    (tmp_path / "agents" / "worker-1.json").touch()
    assert run(command.replace("left=3600", "left=0")).stdout == "-m lab.task.agent.autorun\n"


def test_an_object_that_the_api_server_does_not_take_is_refused(project: Path) -> None:
    names = [f"w{number}" for number in range(900)]
    nodes = "".join(f"  {name}: {{memory: {64 + at}MiB}}\n" for at, name in enumerate(names))
    jobs = f"jobs: {{worker: {{on: [{', '.join(names)}]}}}}\n"
    (project / "cluster.yaml").write_text(f"version: 1\nname: on\nnodes:\n{nodes}{jobs}")
    with pytest.raises(
        InputError, match=r"JobSet lab-on has 1\.\d MiB, but .* at most 1 MiB; give all tasks of"
    ):
        rendered()


def test_what_pods_cannot_have_is_named_with_its_place(project: Path) -> None:
    uuid = "MIG-12345678-1234-1234-1234-123456789abc"
    (project / "cluster.yaml").write_text(
        CLUSTER.replace("name: on", "name: on-")
        .replace("gpus: 1}", f"gpus: [{uuid}]}}")
        .replace("on: [tf2, tf3]", "on: [tf2, tf3], gpus: 1, gpu_memory_fraction: 0.5")
        + "links: {tf1: {delay: 5ms}}\nfaults: ['cut:5s worker-1 after 9 steps']\n"
    )
    with pytest.raises(ConfigError) as error:
        rendered()
    assert error.value.problems == [
        "cluster.yaml:2:7: name: a Kubernetes name ends with a letter or a digit; remove the"
        " hyphen",
        "cluster.yaml:6:24: nodes.tf3.gpus: Kubernetes selects the GPUs; give their number, such"
        " as `gpus: 1`",
        "cluster.yaml:7:63: jobs.worker.gpu_memory_fraction: a Kubernetes pod gets whole GPUs;"
        " leave it out",
        "cluster.yaml:9:14: links.tf1: a Kubernetes pod cannot change the network; leave it out",
        "cluster.yaml:10:10: faults[0]: a Kubernetes pod cannot change the network; leave out"
        " this fault",
    ]


def test_a_name_that_is_too_long_is_refused(project: Path) -> None:
    long = "a" * 31
    (project / "cluster.yaml").write_text(CLUSTER.replace("name: on", f"name: {long}"))
    rendered()
    job = "evaluatorofmodels"
    text = f"version: 1\nname: {long}\nnodes: {{tf1: {{}}}}\njobs: {{{job}: {{on: [tf1]}}}}\n"
    (project / "cluster.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"cluster\.yaml:4:8: .*too long for Kubernetes"):
        rendered()


@pytest.mark.parametrize("name", [LINK, SHARE])
def test_the_other_shipped_configs_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="a Kubernetes pod"):
        rendered(ROOT / "clusters" / f"{name}.yaml")


def test_more_replicated_jobs_than_kueue_admits_are_refused(project: Path) -> None:
    def config(workers: int) -> None:
        nodes = "".join(f"  w{each}: {{cpus: {each + 1}}}\n" for each in range(workers))
        names = ", ".join(f"w{each}" for each in range(workers))
        jobs = f"jobs: {{ps: {{on: [w0]}}, worker: {{on: [{names}]}}}}\n"
        text = f"version: 1\nname: on\nnodes:\n{nodes}{jobs}"
        (project / "cluster.yaml").write_text(text)

    config(16)
    made = one(rendered(queue="on", run="none"), "JobSet")
    assert faults(made, VERSIONS[-1]) == []
    made = one(rendered(queue="on", run="async"), "JobSet")
    assert len(made["spec"]["replicatedJobs"]) == 18
    assert faults(made, VERSIONS[-1]) == []
    config(17)
    rendered()
    with pytest.raises(InputError, match="Kueue admits at most 18 replicated jobs, not 19; give"):
        rendered(queue="on")


@pytest.mark.parametrize("name", ["Team", "a_b", "a..b", "-a", "a.", "a" * 64])
def test_a_queue_that_cannot_exist_is_refused(name: str, cli: Cli) -> None:
    error = cli("render", "--target", "kubernetes", "-o", f"queue={name}", code=2).err
    assert "the option 'queue' of backend kubernetes takes a name of" in error


def test_kueue_needs_a_jobset(cli: Cli) -> None:
    command = ["render", "--target", "kubernetes", "-o", "queue=gpus", "-o", "flavour=plain"]
    assert "-o queue: with -o flavour=plain, Kueue would admit each Job separately" in (
        cli(*command, code=2).err
    )
