"""What a cluster makes of rendered objects: schemas, the restricted security standard, pods.

The schemas of Kubernetes come from `kubernetes-validate`. That of JobSet comes from the
models of `kubeflow-trainer-api`. Kueue's is written by hand from its published API, v1beta2: no
package has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any, Final

from jsonschema import Draft202012Validator
from kubernetes_validate import utils
from referencing import Registry, Resource
from ruamel.yaml import YAML

from tests.kubernetes.crd import GROUP, VERSION, definition

Object = dict[str, Any]

VERSIONS: Final = [
    each for each in dict.fromkeys(utils.all_versions()) if int(each.split(".")[1]) >= 31
]

_NAME: Final = {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
_COUNT: Final = {"type": "integer", "minimum": 0}


def _object(required: tuple[str, ...] = (), **properties: object) -> Object:
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }


def _strict(schema: Object) -> Object:
    """A schema that refuses fields which it does not name."""
    if "items" in schema:
        schema = {**schema, "items": _strict(schema["items"])}
    if "properties" in schema:
        parts = {name: _strict(part) for name, part in schema["properties"].items()}
        schema = {**schema, "properties": parts, "additionalProperties": False}
    return schema


_PUBLISHED: Final = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
_SPEC: Final = _strict(_PUBLISHED["properties"]["spec"])
_SPEC["properties"]["network"]["properties"]["subdomain"] = _NAME
_SPEC["properties"]["successPolicy"]["properties"]["targetReplicatedJobs"]["items"] = _NAME
_SPEC["properties"]["replicatedJobs"]["items"]["properties"] |= {
    "name": _NAME,
    "replicas": _COUNT,
    "template": {"type": "object", "required": ["spec"]},  # checked as a Job
}
JOBSET: Final = _object(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": f"{GROUP}/{VERSION}"},
    kind={"const": "JobSet"},
    metadata={"type": "object"},
    spec=_SPEC,
)

QUEUE: Final = "kueue.x-k8s.io/queue-name"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
_PART: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUEUE_NAME: Final = {
    "type": "string",
    "maxLength": 63,  # as the value of a label; a LocalQueue can have 253
    "pattern": rf"^{_PART}(\.{_PART})*$",
}
WORKLOAD: Final = _object(
    ("podSets", "queueName"),
    queueName=_QUEUE_NAME,
    podSets={
        "type": "array",
        "minItems": 1,
        "maxItems": 18,
        "items": _object(("name", "count", "template"), name=_NAME, count=_COUNT, template={}),
    },
)
"""What Kueue queues: it makes a set of pods from each replicated job."""


def workload_of(jobset: Object) -> Object:
    """The Workload that Kueue makes from a JobSet with a queue."""
    jobs = [(each, each["template"]["spec"]) for each in jobset["spec"]["replicatedJobs"]]
    return {
        "queueName": jobset["metadata"]["labels"][QUEUE],
        "podSets": [
            {
                "name": each["name"],
                "count": each.get("replicas", 1) * job.get("parallelism", 1),
                "template": job["template"],
            }
            for each, job in jobs
        ],
    }


def objects_in(text: str) -> list[Object]:
    """The objects of a rendered file, as kubectl reads them: by YAML 1.1."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    return [*yaml.load_all(text)]


def faults(made: Object, version: str) -> list[str]:
    """What is wrong with an object, each with its path."""
    if made["kind"] == "JobSet":
        found = _faults(Draft202012Validator(JOBSET), made)
        if QUEUE in made["metadata"]["labels"]:
            found += _faults(Draft202012Validator(WORKLOAD), workload_of(made))
        for each in made["spec"].get("replicatedJobs", []):
            job = {"apiVersion": "batch/v1", "kind": "Job", "spec": each["template"]["spec"]}
            found += faults(job, version)
        return found
    return _faults(_validator(version, made["kind"], made["apiVersion"]), made)


def _faults(validator: Draft202012Validator, made: Object) -> list[str]:
    return [
        f"{'.'.join(map(str, each.absolute_path))}: {each.message}"
        for each in validator.iter_errors(made)
    ]


@cache
def _validator(version: str, kind: str, api: str) -> Draft202012Validator:
    group = "-".join(part.split(".")[0] for part in api.split("/"))
    folder = f"kubernetes-json-schema/v{version}-local-strict"
    schema = utils.schema_contents(f"{folder}/{kind.lower()}-{group}.json", version)
    registry: Registry[Any] = Resource.from_contents(schema) @ Registry()
    return Draft202012Validator(schema, registry=_definitions(version) @ registry)


@cache
def _definitions(version: str) -> Resource[Any]:
    file = f"kubernetes-json-schema/v{version}-local-strict/_definitions.json"
    return Resource.from_contents(utils.schema_contents(file, version))


def templates_in(made: Object) -> Iterator[tuple[str, Object]]:
    """The name and the template of each kind of pods that an object starts."""
    if made["kind"] == "Job":
        yield made["metadata"]["name"], made["spec"]["template"]
    for each in made["spec"].get("replicatedJobs", []) if made["kind"] == "JobSet" else []:
        yield each["name"], each["template"]["spec"]["template"]


def pods_in(made: Object) -> Iterator[tuple[str, Object]]:
    """Each pod that the controllers make from a Job or a JobSet, with its host."""
    if made["kind"] == "Job":
        pod = made["spec"]["template"]
        yield f"{pod['spec'].get('hostname')}.{pod['spec'].get('subdomain')}", pod
    for each in made["spec"].get("replicatedJobs", []) if made["kind"] == "JobSet" else []:
        job, subdomain = each["template"]["spec"], made["spec"]["network"]["subdomain"]
        for index in range(job["completions"]):
            pod = deepcopy(job["template"])
            pod["metadata"]["labels"][INDEX] = str(index)
            yield f"{made['metadata']['name']}-{each['name']}-0-{index}.{subdomain}", pod


def violations(spec: Object) -> list[str]:
    """What the restricted Pod Security Standard forbids in a pod."""
    found = [each for each in ("hostNetwork", "hostPID", "hostIPC", "hostUsers") if each in spec]
    kinds = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"}
    found += [each["name"] for each in spec["volumes"] if not each.keys() - {"name"} <= kinds]
    pod = spec["securityContext"]
    if not pod.get("runAsNonRoot") or pod.get("runAsUser") == 0:
        found.append("runAsNonRoot")
    if pod.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
        found.append("seccompProfile")
    for each in [*spec["containers"], *spec.get("initContainers", [])]:
        own = each["securityContext"]
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            found.append("allowPrivilegeEscalation")
        if own["capabilities"].get("drop") != ["ALL"] or "add" in own["capabilities"]:
            found.append("capabilities")
        found += ["hostPort" for port in each.get("ports", []) if "hostPort" in port]
    return found
