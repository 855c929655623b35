"""What differs on Podman, by the answers of Podman 5.4.2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lab.backends.compose import ComposeBackend, cleanup
from lab.backends.compose.client import Engine
from lab.errors import LabError
from lab.service import classroom
from tests.support.fakes import PLAN

PODMAN = {"Version": "5.4.2", "Components": [{"Name": "Podman Engine"}, {"Name": "Conmon"}]}
DOCKER = {"Version": "28.5.2", "Components": [{"Name": "Engine"}, {"Name": "containerd"}]}


class Answers:
    """An engine with another id at each question, as Podman has it."""

    def __init__(self, version: dict[str, Any]) -> None:
        self.version = lambda: version
        self.asked = 0

    def info(self) -> dict[str, Any]:
        self.asked += 1
        return {"ID": f"id-{self.asked}", "Name": "vm", "DockerRootDir": "/var/lib/storage"}


def engine(version: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Engine:
    answers = Answers(version)
    monkeypatch.setattr(Engine, "client", lambda _self: answers)
    return Engine()


def test_podman_has_one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    podman = engine(PODMAN, monkeypatch)
    assert podman.id() == podman.id() == "podman:vm:/var/lib/storage"
    docker = engine(DOCKER, monkeypatch)
    assert docker.id() == "id-1"


def test_gpus_are_requested_by_cdi(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tuple(replace(task, gpus=("GPU-1",)) for task in PLAN.tasks)
    with_gpus = replace(PLAN, tasks=tasks)
    engine(PODMAN, monkeypatch)
    assert ComposeBackend()._options_for(with_gpus).gpus_by == "cdi"
    assert ComposeBackend()._options_for(PLAN).gpus_by == "nvidia"
    engine(DOCKER, monkeypatch)
    assert ComposeBackend()._options_for(with_gpus).gpus_by == "nvidia"


def test_an_anchor_is_removed_after_the_tasks_that_joined_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = {
        "a": {"lab.node": "tf1"},
        "task": {"lab.node": "tf1", "lab.task": "ps-0"},
        "fault": {"lab.node": "tf1", "lab.reader": "mnist"},
        "reader": {"lab.reader": "mnist"},
    }

    class Podman:
        """Refuses to remove the anchor before the others."""

        def containers(self, *_: str) -> list[Any]:
            return [SimpleNamespace(id=name, labels=each) for name, each in left.items()]

        def client(self) -> Any:
            return None

        def for_each(self, doing: str, containers: Sequence[Any], _: Callable[[Any], None]) -> None:
            if doing != "removing a container":
                return
            if "a" in {each.id for each in containers} and len(left) > 1:
                raise LabError("a has dependent containers which must be removed before it")
            for each in containers:
                del left[each.id]

    monkeypatch.setattr(cleanup, "list_resources", lambda *_: cleanup.NO_RESOURCES)
    cleanup.remove(Podman(), "mnist", lambda _: None)  # type: ignore[arg-type]
    assert not left


def test_a_class_in_containers_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    engine(PODMAN, monkeypatch)
    monkeypatch.setattr(classroom, "find_root", lambda _: tmp_path)
    with pytest.raises(LabError, match="this engine is Podman") as caught:
        classroom._new_class(tmp_path / "class.yaml", None, "compose", print)  # type: ignore[arg-type]
    assert "--backend local" in caught.value.fix
