"""A real API server with JobSet's definition accepts the rendered JobSets and refuses wrong ones.

JobSet's controller and its webhook are not there, so no JobSet runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.kubernetes import crd
from tests.kubernetes.api import Api
from tests.kubernetes.builds import CUSTOM_RESOURCES, built
from tests.kubernetes.site import NAMESPACE, Site, start_custom_resources
from tests.support.commands import lab
from tests.support.engine import ROOT

# The first test may have to compile the API server for custom resources.
pytestmark = pytest.mark.timeout(2700)

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBSETS = f"/apis/{crd.GROUP}/{crd.VERSION}/namespaces/{NAMESPACE}/jobsets"
STRICT = f"{JOBSETS}?fieldValidation=Strict"
CONFIGS = ["cluster.yaml", *(f"clusters/{each.name}" for each in (ROOT / "clusters").iterdir())]
REFUSED = {"clusters/book.yaml", "clusters/slow-link.yaml"}
"""Configs that the renderer refuses: one shares a GPU, one has a link."""

Object = dict[str, Any]


@pytest.fixture(scope="module")
def api(site: Site) -> Iterator[Api]:
    """The API server for custom resources, with JobSet's definition."""
    found = start_custom_resources(site, built(CUSTOM_RESOURCES) / "apiextensions-apiserver")
    code, text = found.answer(CRDS, crd.definition())
    assert code == 201, text

    def established() -> bool:
        return found.answer(JOBSETS)[0] == 200

    site.wait(established, "JobSets are not served", 60.0)
    yield found
    site.end("apiextensions-apiserver")


def jobset(config: str, tmp_path: Path, *flags: str) -> Object:
    """The JobSet of a config."""
    file = tmp_path / "jobset.yml"
    lab(
        tmp_path,
        *("render", "--target", "kubernetes", "--cluster", str(ROOT / config)),
        *("--output", str(file), *flags),
    )
    (found,) = [each for each in YAML(typ="safe").load_all(file) if each["kind"] == "JobSet"]
    found["metadata"].pop("namespace", None)
    return dict(found)


@pytest.fixture
def good(tmp_path: Path) -> Object:
    """The JobSet of the shipped config, with a run."""
    return jobset("cluster.yaml", tmp_path, "--run", "async", "--", "--epochs=1")


def test_the_jobset_of_a_run_is_accepted(api: Api, good: Object) -> None:
    code, text = api.answer(STRICT, good)
    assert code == 201, text
    stored = json.loads(text)["spec"]
    assert stored["successPolicy"] == good["spec"]["successPolicy"]
    # Nothing that was sent is missing in what is stored.
    assert _kept(good["spec"]["replicatedJobs"], stored["replicatedJobs"])


@pytest.mark.parametrize("config", sorted({*CONFIGS} - REFUSED))
def test_the_jobset_of_each_shipped_config_is_accepted(
    api: Api, config: str, tmp_path: Path
) -> None:
    found = jobset(config, tmp_path)
    found["metadata"]["name"] = "shipped"
    code, text = api.answer(f"{STRICT}&dryRun=All", found)
    assert code == 201, text


def _kept(given: Any, stored: Any) -> bool:
    """Whether all values of an object are in the stored one, which may have defaults beside."""
    if isinstance(given, dict):
        return all(name in stored and _kept(each, stored[name]) for name, each in given.items())
    if isinstance(given, list):
        return len(given) == len(stored) and all(map(_kept, given, stored))
    return bool(given == stored)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda spec: spec["successPolicy"].update(operator="Some"),
            'spec.successPolicy.operator: Unsupported value: "Some"',
        ),
        (
            lambda spec: spec["replicatedJobs"][1]["dependsOn"][0].update(status="Started"),
            'dependsOn[0].status: Unsupported value: "Started"',
        ),
        (
            lambda spec: spec["replicatedJobs"].append(spec["replicatedJobs"][0]),
            'spec.replicatedJobs[3]: Duplicate value: {"name":"ps"}',
        ),
        (
            lambda spec: spec.update(startupPolicy={"startupPolicyOrder": "InOrder"}),
            "StartupPolicy and DependsOn APIs are mutually exclusive",
        ),
        (
            lambda spec: spec.update(sucessPolicy=spec.pop("successPolicy")),
            'strict decoding error: unknown field "spec.sucessPolicy"',
        ),
    ],
    ids=["operator", "status", "duplicate", "two-orders", "unknown-field"],
)
def test_a_wrong_jobset_is_refused_with_its_reason(
    api: Api, good: Object, wrong: Callable[[Object], object], message: str
) -> None:
    good["metadata"]["name"] = "wrong"
    wrong(good["spec"])
    code, text = api.answer(STRICT, good)
    assert code in {400, 422}, text
    assert message in text
    assert api.answer(f"{JOBSETS}/wrong")[0] == 404
