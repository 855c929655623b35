"""The CustomResourceDefinition of JobSet, for a real API server.

Fields and types are those of the published models (the package `kubeflow-trainer-api`). The models
have no permitted values and no rules, so these are written here from JobSet's published API. The
rules of JobSet's webhook are not there: it needs JobSet's controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

GROUP: Final = "jobset.x-k8s.io"
VERSION: Final = "v1alpha2"

Schema = dict[str, Any]

_IMMUTABLE: Final = [{"rule": "self == oldSelf", "message": "Value is immutable"}]
_RULES: Final[Mapping[str, Schema]] = {
    "spec": {
        "x-kubernetes-validations": [
            {
                "rule": (
                    "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder =="
                    " 'InOrder' && self.replicatedJobs.exists(x, has(x.dependsOn)))"
                ),
                "message": "StartupPolicy and DependsOn APIs are mutually exclusive",
            }
        ]
    },
    "spec.network": {"x-kubernetes-validations": _IMMUTABLE},
    "spec.successPolicy": {"x-kubernetes-validations": _IMMUTABLE},
    "spec.successPolicy.operator": {"enum": ["All", "Any"]},
    "spec.failurePolicy": {"x-kubernetes-validations": _IMMUTABLE},
    "spec.failurePolicy.restartStrategy": {
        "enum": ["Recreate", "BlockingRecreate", "InPlaceRestart"]
    },
    "spec.failurePolicy.rules.action": {
        "enum": [
            *("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"),
            *("RestartJob", "RestartJobAndIgnoreMaxRestarts"),
        ]
    },
    "spec.startupPolicy.startupPolicyOrder": {"enum": ["AnyOrder", "InOrder"]},
    "spec.replicatedJobs": {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    "spec.replicatedJobs.dependsOn": {
        "maxItems": 5,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    "spec.replicatedJobs.dependsOn.status": {"enum": ["Ready", "Complete"]},
    "spec.replicatedJobs.replicas": {"default": 1},
    "spec.replicatedJobs.groupName": {"default": "default"},
    "spec.ttlSecondsAfterFinished": {"minimum": 0},
}
"""Path of a field, without the indices of lists → what its schema has beside its type."""

_BOTH: Final = {"x-kubernetes-int-or-string": True}
_ANY: Final = {"x-kubernetes-preserve-unknown-fields": True}


def definition() -> dict[str, Any]:
    published = JobsetV1alpha2JobSet.model_json_schema(by_alias=True)
    schema = _schema(published, published["$defs"], "")
    schema["properties"]["metadata"] = {"type": "object"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # The API server demands a link to an approval of a group of Kubernetes itself.
        "metadata": {
            "name": f"jobsets.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": "JobSet",
                "listKind": "JobSetList",
                "plural": "jobsets",
                "singular": "jobset",
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def _schema(node: Schema, defs: Mapping[str, Schema], path: str) -> Schema:
    """A part of the models' schema as the schema of a field, with its rules."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name.endswith(("Quantity", "IntOrString")):
            return dict(_BOTH)
        return _schema(defs[name], defs, path)
    if "anyOf" in node:  # a field that may be missing
        (own,) = [each for each in node["anyOf"] if each.get("type") != "null"]
        return _schema(own, defs, path)
    if "type" not in node:
        return dict(_ANY)
    found: Schema = {"type": node["type"], **_RULES.get(path, {})}
    if "items" in node:
        found["items"] = _schema(node["items"], defs, path)
        # The rules of a list are not those of its items.
        for rule in _RULES.get(path, {}):
            found["items"].pop(rule, None)
    if isinstance(more := node.get("additionalProperties"), dict):
        found["additionalProperties"] = _schema(more, defs, path)
    if properties := node.get("properties"):
        found["properties"] = {
            name: _schema(each, defs, f"{path}.{name}".lstrip("."))
            for name, each in properties.items()
        }
        found["required"] = node.get("required", [])
    return found
