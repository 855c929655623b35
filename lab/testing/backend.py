"""The tests that every backend passes, those of lab and those of other packages.

A package tests its backend with a class of its own::

    class TestBarge(BackendTests):
        name = "barge"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

import pytest

import lab
from lab.backends.base import Backend
from lab.backends.environment import Check, Environment
from lab.backends.names import AUTO, Capabilities, capabilities
from lab.backends.options import read_options, text_of
from lab.backends.registry import backend_named
from lab.backends.rendered_file import Rendering, RenderOptions, is_rendered, read_state
from lab.backends.state import Busy, lock_environment
from lab.base.errors import InputError, LabError
from lab.base.log import passed_on
from lab.base.variables import LAB_STATE
from lab.cluster.config import parse_cluster
from lab.cluster.placement.plan import Plan
from lab.protocol.runtimes import TENSORFLOW
from lab.protocol.volume import Request, RunSpec

CLUSTER: Final = """\
version: 1
name: conformance
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf1, tf2]}}
"""
"""The config of the environments: three tasks on two nodes, without GPUs."""

PROGRAM: Final = """\
for step in range(1, 4):
    print(f"step {step}, loss {1 / step}")
"""
"""A program that imports no framework, and prints three steps."""


@dataclass(slots=True)
class Site:
    """A host on which a backend boots.

    Attributes:
        backend: The backend.
        plan: A plan for it.
        root: The project's directory.
        left: Returns the names of what is left of environments: files, processes, containers.
        before_boot: Called before each boot.
    """

    backend: Backend
    plan: Plan
    root: Path
    left: Callable[[], list[str]]
    before_boot: Callable[[], object] = lambda: None

    def up(self, check: Check | None = None) -> Environment:
        """Boot the plan; see `Backend.up`."""
        self.before_boot()
        return self.backend.up(self.plan, root=self.root, check=check)


def files_left(folder: Path) -> list[str]:
    """Return the files of environments in a state directory; locks and caches may stay."""
    kept = {".lock", ".known"}
    return [str(each) for each in folder.rglob("*") if each.is_file() and each.suffix not in kept]


class EnvironmentTests:
    """Tests of plans, rendered files and environments; no program runs.

    Attributes:
        name: The backend's name, that of its entry point.
        options: A value of each option of its own that is not the default.
    """

    name: ClassVar[str]
    options: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @contextmanager
    def host(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
        """Yield a host on which the backend boots; override it if yours needs more."""
        del monkeypatch
        backend = backend_named(self.name)
        cluster = parse_cluster(CLUSTER.encode(), "cluster.yaml")
        plan = backend.plan(cluster, "none", runtime=TENSORFLOW.name).plan
        yield Site(backend, plan, tmp_path, lambda: files_left(tmp_path / "state"))

    @pytest.fixture(autouse=True)
    def state(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Keep environments in the test's own directory."""
        monkeypatch.setenv(LAB_STATE, str(tmp_path / "state"))

    @pytest.fixture
    def backend(self) -> Backend:
        """The backend."""
        return backend_named(self.name)

    @pytest.fixture
    def able(self) -> Capabilities:
        """What it can do."""
        return capabilities(self.name)

    @pytest.fixture
    def plan(self, backend: Backend) -> Plan:
        """A plan without GPUs."""
        cluster = parse_cluster(CLUSTER.encode(), "cluster.yaml")
        return backend.plan(cluster, "none", runtime=TENSORFLOW.name).plan

    @pytest.fixture
    def site(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
        """A host on which it boots."""
        with self.host(tmp_path, monkeypatch) as found:
            yield found

    def test_its_reason_is_one_line(self, backend: Backend) -> None:
        """`lab backends` shows why it cannot be used."""
        reason = backend.unavailable_reason()
        assert reason is None or len(reason.splitlines()) == 1

    @pytest.mark.parametrize("mode", ["none", AUTO])
    def test_it_plans_a_config(self, backend: Backend, mode: str) -> None:
        """A plan has the config's tasks and digest; without GPUs, no task has one."""
        config = b"{version: 1, name: m, nodes: {tf1: {gpus: 1}}, jobs: {worker: {on: [tf1]}}}"
        cluster = parse_cluster(config, "cluster.yaml")
        plan = backend.plan(cluster, mode, runtime=TENSORFLOW.name).plan
        assert [task.name for task in plan.tasks] == ["worker-0"]
        assert mode != "none" or plan.tasks[0].gpus == ()
        assert plan.cluster_sha256 == cluster.sha256
        assert plan.runtime == TENSORFLOW.name

    def test_it_renders_the_same_bytes_or_refuses_by_name(
        self, backend: Backend, able: Capabilities, plan: Plan
    ) -> None:
        """The rendered file has what `lab render --check` reads."""
        if not able.renders:
            with pytest.raises(InputError, match=f"backend {backend.name} has no file to render"):
                backend.render(plan, Rendering())
            return
        text = backend.render(plan, Rendering())
        assert text == backend_named(backend.name).render(plan, Rendering())
        assert is_rendered(text.encode())
        assert backend.start_hint(Path(able.renders[0]))
        assert read_state(text, able.options) == RenderOptions("none", TENSORFLOW.name, "", {})

    def test_only_tasks_that_see_files_under_the_same_path_have_any_file(
        self, backend: Backend, able: Capabilities, tmp_path: Path
    ) -> None:
        """`--data_dir` takes a directory that the tasks see."""
        project, outside = tmp_path / "project", tmp_path / "outside"
        if able.containers:
            with pytest.raises(InputError, match="--data_dir"):
                backend.task_path(outside, project)
        else:
            assert backend.task_path(outside, project) == str(outside)

    def test_its_options_are_read_and_reach_the_rendered_file(
        self, backend: Backend, able: Capabilities, plan: Plan
    ) -> None:
        """`-o NAME=VALUE` is read once, and recorded in the file."""
        assert self.options.keys() == {each.name for each in able.options}
        for option in able.options:
            assert "\n" not in option.help
            assert option.default == "" or option.parse(text_of(option.default)) == option.default
            word = f"{option.name}={self.options[option.name]}"
            with pytest.raises(InputError, match=f"-o {option.name} is given twice"):
                read_options(backend.name, able.options, [word, word])
            values = read_options(backend.name, able.options, [word])
            assert values[option.name] != option.default
            if able.renders:
                text = backend_named(backend.name, values).render(plan, Rendering())
                found = read_state(text, able.options)
                assert found is not None
                assert found.own == values

    def test_an_option_of_another_backend_is_refused(self, able: Capabilities) -> None:
        """The error names the options that it has."""
        for text in ("nothing=1", "nothing", "", "=", "\x1b=1"):
            with pytest.raises(InputError) as caught:
                read_options(self.name, able.options, [text])
            assert f"backend {self.name} has no such option" in str(caught.value)
            assert all(each.usage in str(caught.value) for each in able.options)
            assert "\x1b" not in str(caught.value)

    def test_an_environment_from_its_boot_to_its_end(self, site: Site) -> None:
        """It is found while it is up, and nothing of it is left."""
        seen: list[Environment] = []
        environment = site.up(seen.append)
        assert [each.project for each in seen] == [site.plan.name]
        assert (environment.backend, environment.project) == (site.backend.name, site.plan.name)
        assert environment.cluster_sha256 == site.plan.cluster_sha256
        assert environment.folder == str(site.root)
        found = _found(site)
        assert site.plan.name in site.backend.projects()
        assert [each.project for each in site.backend.all()] == [site.plan.name]
        assert all(each.is_up for each in site.backend.list_environments())
        tasks = [(each.task, each.node, each.alive) for each in found.tasks()]
        assert tasks == [(each.name, each.node, True) for each in site.plan.tasks]
        if not capabilities(site.backend.name).network_faults:
            with pytest.raises(LabError, match=r"cannot change the network of node .*; use other"):
                found.inject_network_fault(site.plan.tasks[0].node, ["cut:5s"])
        found.down()
        assert site.left() == []
        assert site.backend.find_any(site.plan.name) is None
        assert [*site.backend.projects()] == []

    def test_only_one_command_changes_an_environment(self, site: Site) -> None:
        """Boot, submission and removal are refused while another command has the lock."""
        site.up()
        found = _found(site)
        request = Request("r1", RunSpec("async"), found.cluster_spec())
        changes: list[Callable[[], Any]] = [
            lambda: site.backend.up(site.plan, root=site.root),
            lambda: found.submit(request),
            found.down,
        ]
        with lock_environment(site.backend.name, site.plan.name):
            for change in changes:
                with pytest.raises(Busy, match=f"is using the {site.backend.name} environment"):
                    change()

        def needed() -> bool:
            name = site.plan.name
            with pytest.raises(Busy), lock_environment(site.backend.name, name, shared=True):
                pass
            raise LabError("it is needed")

        with pytest.raises(LabError, match="it is needed"):
            found.down(keeps=needed)
        assert found.is_up
        found.down()

    def test_a_request_needs_all_agents(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        """A run is refused if an agent of the environment does not run."""
        site.up()
        found = _found(site)
        dead = [replace(each, alive=False) for each in found.tasks()]
        with monkeypatch.context() as patch:
            patch.setattr(type(found), "tasks", lambda _: dead)
            with pytest.raises(LabError, match=f"of environment {site.plan.name} is not up"):
                found.submit(Request("r1", RunSpec("async"), found.cluster_spec()))
        found.down()

    def test_a_boot_that_fails_leaves_nothing(self, site: Site) -> None:
        """The check of a boot fails; the next boot succeeds."""

        def interrupt(_: Environment) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            site.up(interrupt)
        assert site.left() == []
        assert site.backend.find_any(site.plan.name) is None
        site.up().down()
        assert site.left() == []

    def test_a_boot_that_is_interrupted_while_it_waits_leaves_nothing(self, site: Site) -> None:
        """An interrupt at the first line that a boot reports."""
        lines: list[str] = []

        def interrupt(line: str) -> None:
            lines.append(line)
            if len(lines) == 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), passed_on(interrupt):
            site.up()
        assert site.left() == []
        assert site.backend.find_any(site.plan.name) is None


class BackendTests(EnvironmentTests):
    """All tests, also those whose agents run a program."""

    def test_a_program_runs_and_its_files_are_collected(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`lab.run` boots, runs a program in every task, collects, and leaves nothing."""
        project = tmp_path / "project"
        project.mkdir()
        (project / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
        (project / "count.py").write_text(PROGRAM, encoding="utf-8")
        monkeypatch.chdir(project)
        with self.host(tmp_path, monkeypatch) as site:
            site.before_boot()
            done = lab.run("count.py", backend=self.name, gpus="none")
            assert site.left() == []
        assert done.summary.state == "succeeded"
        steps = {each.task: each.global_step for each in done.summary.tasks}
        assert steps == {"ps-0": 3, "worker-0": 3, "worker-1": 3}


def _found(site: Site) -> Environment:
    """Return the environment of a site, found by its name as another command finds it."""
    found = site.backend.find(site.plan.name)
    assert found is not None
    return found
