"""The backends by name, and the conformance suite for each; test_daily_use.py trains on them."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest

from lab.backends.names import AUTO, known
from lab.backends.registry import backend_named, backends, options_of
from lab.backends.rendered_file import Rendering
from lab.base.errors import InputError
from lab.cluster.config import parse_cluster
from lab.testing.backend import CLUSTER, BackendTests, EnvironmentTests
from tests.support import sites
from tests.support.cli import Cli, replace_backends
from tests.support.fakes import FakeBackend


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")


class TestLocal(BackendTests):
    name = "local"
    host = staticmethod(sites.local)


class TestCompose(EnvironmentTests):
    name = "compose"
    options: ClassVar = {"gpus-by": "cdi", "network": "isolated"}
    host = staticmethod(sites.containers)


class TestClass(EnvironmentTests):
    name = "class"
    host = staticmethod(sites.classroom)


class TestSlurm(EnvironmentTests):
    name = "slurm"
    options: ClassVar = {"time": "2h"}
    host = staticmethod(sites.slurm)


class TestKubernetes(EnvironmentTests):
    name = "kubernetes"
    options: ClassVar = {
        **{"flavour": "plain", "nodes": "one", "queue": "gpus"},
        **{"namespace": "course", "claim": "c", "image": "lab:1"},
    }
    host = staticmethod(sites.kubernetes)


def test_every_backend_passes_the_conformance_suite() -> None:
    suites = EnvironmentTests.__subclasses__() + BackendTests.__subclasses__()
    tested = {each.name for each in suites if each is not BackendTests}
    assert tested == {each.name for each in backends()} == {*known()}


def test_each_option_needs_its_own_flag() -> None:
    with pytest.raises(InputError) as caught:
        options_of("kubernetes", ["flavour=plain,nodes=one"])
    assert str(caught.value) == (
        "-o flavour=plain,nodes=one: the option 'flavour' of backend kubernetes takes"
        " jobset or plain; write -o flavour=jobset|plain"
    )


def test_options_need_the_name_of_a_backend() -> None:
    with pytest.raises(InputError, match="-o time=2h needs a backend; name it with --backend NAME"):
        options_of(AUTO, ["time=2h"])
    slurm = backend_named("slurm", options_of("slurm", ["time=2h"]))
    plan = slurm.plan(parse_cluster(CLUSTER.encode(), "x.yaml"), "none", runtime="tensorflow").plan
    assert " time=7200 " in slurm.render(plan, Rendering())


def test_the_backends_are_listed_with_their_options(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    nothing = "no engine answers"
    replace_backends(monkeypatch, FakeBackend("compose", fault=nothing), FakeBackend("local"))
    lines = cli("backends").out.splitlines()
    assert f"compose: cannot be used here: {nothing}" in lines
    assert "  -o gpus-by=nvidia|cdi: how to request GPUs from the engine; default: nvidia" in lines
    assert "local: can be used here" in lines
    found = {each["name"]: each for each in json.loads(cli("backends", "--json").out)}
    assert set(found) == set(known())
    assert (found["compose"]["usable"], found["compose"]["reason"]) == (False, nothing)
    assert (found["local"]["usable"], found["local"]["options"]) == (True, [])
    assert [each["name"] for each in found["slurm"]["options"]] == ["time"]
