"""The conformance suite of the backends; tests/e2e/test_daily_use.py trains on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.base import Backend
from lab.backends.environment import Environment
from lab.backends.names import AUTO, CAPABILITIES, Capabilities
from lab.backends.options import read_options, text_of
from lab.backends.registry import backend_named, backends, options_of
from lab.backends.rendered_file import Rendering, is_rendered, read_state
from lab.backends.state import Busy, lock_environment
from lab.base.errors import InputError, LabError
from lab.base.log import passed_on
from lab.cluster.config import parse_cluster
from lab.protocol.volume import Request, RunSpec
from tests.support.cli import Cli, replace_backends
from tests.support.fakes import FakeBackend, raising
from tests.support.sites import SITES, Site

CLUSTER = b"{version: 1, name: m, nodes: {tf1: {gpus: 1}}, jobs: {worker: {on: [tf1]}}}"
GIVEN = {
    **{"gpus-by": "cdi", "network": "isolated"},
    "time": "2h",
    **{
        "flavour": "plain",
        "nodes": "one",
        "queue": "gpus",
        "namespace": "course",
        "claim": "c",
        "image": "lab:1",
    },
}
"""A value of each option that is not its default."""


@pytest.fixture(params=CAPABILITIES)
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    return request.param


@pytest.fixture
def backend(name: str) -> Backend:
    return backend_named(name)


@pytest.fixture
def able(name: str) -> Capabilities:
    return CAPABILITIES[name]


@pytest.fixture
def site(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with SITES[name](tmp_path, monkeypatch) as found:
        yield found


def test_the_registry_has_the_backends_with_capabilities() -> None:
    assert [each.name for each in backends()] == [*CAPABILITIES]
    assert {*SITES} == {*CAPABILITIES}


def test_its_reason_is_one_line(backend: Backend) -> None:
    reason = backend.unavailable_reason()
    assert reason is None or len(reason.splitlines()) == 1


@pytest.mark.parametrize("mode", ["none", AUTO])
def test_it_plans_a_config(backend: Backend, mode: str) -> None:
    cluster = parse_cluster(CLUSTER, "cluster.yaml")
    placed = backend.plan(cluster, mode, runtime="tensorflow")
    assert [task.name for task in placed.plan.tasks] == ["worker-0"]
    assert mode != "none" or placed.plan.tasks[0].gpus == ()
    assert placed.plan.cluster_sha256 == cluster.sha256
    assert placed.plan.runtime == "tensorflow"


def test_it_renders_the_same_bytes_or_refuses_by_name(backend: Backend, able: Capabilities) -> None:
    cluster = parse_cluster(CLUSTER, "cluster.yaml")
    plan = backend.plan(cluster, "none", runtime="tensorflow").plan
    if not able.renders:
        with pytest.raises(InputError, match=f"backend {backend.name} has no file to render; use"):
            backend.render(plan, Rendering())
        return
    text = backend.render(plan, Rendering())
    assert text == backend_named(backend.name).render(plan, Rendering())
    assert is_rendered(text.encode())
    assert backend.start_hint(Path(able.renders[0]))
    found = read_state(text, able.options)
    assert (found.gpus, found.runtime, found.run, found.own) == ("none", "tensorflow", "", {})


def test_only_tasks_that_see_files_under_the_same_path_have_any_file(
    backend: Backend, able: Capabilities, tmp_path: Path
) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    if able.containers:
        with pytest.raises(InputError, match="--data_dir"):
            backend.task_path(outside, project)
    else:
        assert backend.task_path(outside, project) == str(outside)


def test_its_options_are_read_and_reach_the_rendered_file(
    backend: Backend, able: Capabilities
) -> None:
    plan = backend.plan(parse_cluster(CLUSTER, "x.yaml"), "none", runtime="tensorflow").plan
    for option in able.options:
        assert "\n" not in option.help
        assert option.default == "" or option.parse(text_of(option.default)) == option.default
        word = f"{option.name}={GIVEN[option.name]}"
        with pytest.raises(InputError, match=f"-o {option.name} is given twice"):
            read_options(backend.name, able.options, [word, word])
        values = read_options(backend.name, able.options, [word])
        assert values[option.name] != option.default
        text = backend_named(backend.name, values).render(plan, Rendering())
        found = read_state(text, able.options)
        assert found.own == values


def test_an_option_of_another_backend_is_refused(name: str, able: Capabilities) -> None:
    for text in ("nothing=1", "nothing", "", "=", "\x1b=1"):
        with pytest.raises(InputError) as caught:
            read_options(name, able.options, [text])
        assert f"backend {name} has no such option" in str(caught.value)
        assert all(each.usage in str(caught.value) for each in able.options)
        assert "\x1b" not in str(caught.value)


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
    plan = slurm.plan(parse_cluster(CLUSTER, "x.yaml"), "none", runtime="tensorflow").plan
    assert " time=7200 " in slurm.render(plan, Rendering())


def test_an_environment_from_its_boot_to_its_end(site: Site) -> None:
    seen: list[Environment] = []
    environment = site.up(seen.append)
    assert [each.project for each in seen] == [site.plan.name]
    assert (environment.backend, environment.project) == (site.backend.name, site.plan.name)
    assert environment.cluster_sha256 == site.plan.cluster_sha256
    assert environment.folder == str(site.root)
    found = site.backend.find(site.plan.name)
    assert site.plan.name in site.backend.projects()
    assert [each.project for each in site.backend.all()] == [site.plan.name]
    assert all(each.is_up for each in site.backend.list_environments())
    tasks = [(each.task, each.node, each.alive) for each in found.tasks()]
    assert tasks == [(each.name, each.node, True) for each in site.plan.tasks]
    if not CAPABILITIES[site.backend.name].network_faults:
        with pytest.raises(LabError, match=r"cannot change the network of node .*; use other"):
            found.inject_network_fault(site.plan.tasks[0].node, ["cut:5s"])
    with lock_environment(site.backend.name, site.plan.name):
        request = Request("r1", RunSpec("async"), found.cluster_spec())
        for change in (
            lambda: site.backend.up(site.plan, root=site.root),
            lambda: found.submit(request),
            found.down,
        ):
            with pytest.raises(Busy, match=f"uses the {site.backend.name} environment"):
                change()

    dead = [replace(each, alive=False) for each in found.tasks()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(found), "tasks", lambda _: dead)
        with pytest.raises(LabError, match=f"of environment {site.plan.name} is not up"):
            found.submit(request)

    def needed() -> bool:
        with pytest.raises(Busy), lock_environment(site.backend.name, site.plan.name, shared=True):
            pass
        raise LabError("it is needed")

    with pytest.raises(LabError, match="it is needed"):
        found.down(keeps=needed)
    assert found.is_up
    found.down()
    assert site.left() == []
    assert site.backend.find_any(site.plan.name) is None
    assert [*site.backend.projects()] == []


def test_a_boot_that_fails_leaves_nothing(site: Site) -> None:
    with pytest.raises(KeyboardInterrupt):
        site.up(raising(KeyboardInterrupt()))
    assert site.left() == []
    assert site.backend.find_any(site.plan.name) is None
    site.up().down()
    assert site.left() == []


def test_a_boot_that_is_interrupted_while_it_waits_leaves_nothing(site: Site) -> None:
    lines: list[str] = []

    def interrupt(line: str) -> None:
        lines.append(line)
        if len(lines) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), passed_on(interrupt):
        site.up()
    assert site.left() == []
    assert site.backend.find_any(site.plan.name) is None


def test_the_backends_are_listed_with_their_options(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    nothing = "no engine answers"
    replace_backends(monkeypatch, FakeBackend("compose", fault=nothing), FakeBackend("local"))
    lines = cli("backends").out.splitlines()
    assert f"compose: cannot be used here: {nothing}" in lines
    assert "  -o gpus-by=nvidia|cdi: how to request GPUs of the engine; default: nvidia" in lines
    assert "local: can be used here" in lines
    found = {each["name"]: each for each in json.loads(cli("backends", "--json").out)}
    assert set(found) == set(CAPABILITIES)
    assert (found["compose"]["usable"], found["compose"]["reason"]) == (False, nothing)
    assert (found["local"]["usable"], found["local"]["options"]) == (True, [])
    assert [each["name"] for each in found["slurm"]["options"]] == ["time"]
