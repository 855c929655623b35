"""An image with another version of lab's own code; the engine is made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import docker.errors
import pytest

from lab.backends.compose import boot, cli
from lab.backends.compose import image_build as image
from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.cleanup import NO_RESOURCES
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.image_build import Image, ImageBuilder
from lab.backends.engine.client import Done, Engine
from lab.base.errors import LabError
from lab.base.image_digest import BUILD_ARGUMENT, LABEL, digest, sources
from lab.base.log import shown_by
from lab.cluster.placement.plan import Plan
from tests.support.containers import inspected
from tests.support.engine import ROOT
from tests.support.fakes import PLAN, raising

BASE = "python:3.11-slim-bookworm"
IMAGE = Image("tf1", "lab:cpu", BASE, "image-cpu")
MINE = replace(IMAGE, name="lab:mine")
NO_REGISTRY = raising(docker.errors.APIError("no registry"))
HERITAGE = replace(PLAN, runtime="tensorflow-2.15")
HERE = digest()
OLD = "0" * 64


@dataclass
class Docker:
    """The used part of docker-py's client: images by name, each with its label, and containers."""

    digests: dict[str, str | None] = field(default_factory=dict)
    inspected: list[dict[str, Any]] = field(default_factory=list)
    pull: Callable[..., None] = NO_REGISTRY

    @property
    def images(self) -> Any:
        return SimpleNamespace(get=self._image, get_registry_data=self.pull)

    @property
    def containers(self) -> Any:
        listed = [
            SimpleNamespace(attrs=each, labels=each["Config"]["Labels"], status="running")
            for each in self.inspected
        ]
        return SimpleNamespace(list=lambda **_: listed)

    def _image(self, name: str) -> Any:
        if name not in self.digests:
            raise docker.errors.ImageNotFound("404", explanation=f"No such image: {name}")
        label = self.digests[name]
        return SimpleNamespace(labels={} if label is None else {LABEL: label})


def an_engine(**digests: str | None) -> Engine:
    engine = Engine()
    names = {"base": BASE}
    engine._local.client = Docker(
        {names.get(name, f"lab:{name}"): digest for name, digest in digests.items()}
    )
    return engine


def docker_of(engine: Engine) -> Docker:
    client: Any = engine.client()
    assert isinstance(client, Docker)
    return client


def test_an_image_names_its_version() -> None:
    engine = an_engine(cpu=HERE, base=None)
    found = [image.image_digest(engine, name) for name in ("lab:cpu", BASE, "lab:none")]
    assert found == [digest(), "", None]


@pytest.mark.parametrize(
    ("first", "second", "output"),
    [(OLD, OLD, OLD), (OLD, HERE, ""), (HERE, HERE, digest())],
    ids=["old", "both", "this"],
)
def test_an_environment_has_the_version_of_all_its_containers(
    first: str, second: str, output: str
) -> None:
    engine = Engine()
    containers = [inspected() | {"Id": f"c{n}", "Image": f"sha256:{n}"} for n in (0, 1)]
    for container, label in zip(containers, (first, second), strict=True):
        container["Config"]["Labels"][LABEL] = label
    engine._local.client = Docker({}, containers)
    assert ComposeEnvironment(engine, "mnist").sources_sha256 == output


def test_containers_of_an_image_without_a_label_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """`docker compose build` sets no label."""
    ask = Mock(return_value=Done(0, f"{digest()}\n".encode(), b""))
    monkeypatch.setattr(Engine, "execute", ask)
    engine = Engine()
    engine._local.client = Docker({}, [inspected(), inspected()])
    assert ComposeEnvironment(engine, "mnist").sources_sha256 == digest()
    (call,) = ask.call_args_list
    assert call.args[2] == ["python", "-m", "lab.base.image_digest"]
    engine._local.client = Docker({}, [inspected(Status="exited")])
    assert ComposeEnvironment(engine, "mnist").sources_sha256 == ""


def builder(engine: Engine, wanted: Image, plan: Plan = PLAN, compose: Any = None) -> ImageBuilder:
    return ImageBuilder(engine, plan, compose, wanted)


def test_an_image_named_by_the_user_is_unchanged() -> None:
    with pytest.raises(LabError) as caught:
        builder(an_engine(mine=OLD), MINE).problem()
    assert str(caught.value) == (
        "the image lab:mine (LAB_IMAGE) has a different version of lab's code; if"
        " `lab build` made it, run `lab build` again; if you built it on lab:cpu, run"
        " `LAB_IMAGE= lab build` and then your own build"
    )
    with pytest.raises(LabError, match=r"lab:mine .LAB_IMAGE. .* on lab:heritage-cpu, r"):
        builder(an_engine(mine=OLD), MINE, HERITAGE).problem()


class Host:
    """A host with these images, and a `docker compose` that builds."""

    def __init__(self, **digests: str | None) -> None:
        self.engine = an_engine(**digests)
        self.output: list[str] = []
        self.done: list[str] = []
        self.root = Path("/p")
        self.context = ROOT
        self.backend = ComposeBackend()
        self.backend._engine = self.engine

    def compose(self, *_: object) -> Host:
        return self

    def config(self) -> dict[str, Any]:
        arguments = {"BASE_IMAGE": BASE, "REQUIREMENTS": "image-cpu", "TENSORFLOW": ""}
        return {"services": {"tf1": {"image": "lab:cpu", "build": {"args": arguments}}}}

    def prepare(self, root: Path) -> Path:
        assert root == self.root
        return self.context

    def build(self, service: str, **arguments: str) -> None:
        self.done.append(f"build {service}")
        docker_of(self.engine).digests["lab:cpu"] = arguments[BUILD_ARGUMENT]

    def up(self) -> None:
        self.done.append("up")

    def builds(self, wanted: Image = IMAGE, plan: Plan = PLAN) -> None:
        with shown_by(self.output.append):
            builder(self.engine, wanted, plan, self).build()

    def boots(self) -> None:
        with shown_by(self.output.append):
            self.backend.up(PLAN, root=Path("/p"))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Host]:
    monkeypatch.setenv("LAB_STATE", str(tmp_path))
    monkeypatch.setattr(boot, "list_resources", lambda *_: NO_RESOURCES)
    for name in ("remove", "wait_until_up", "restart_detached_tasks"):
        monkeypatch.setattr(boot, name, lambda *_, **__: None)
    monkeypatch.setattr(ComposeEnvironment, "block_host", lambda *_: None)

    def make(**digests: str | None) -> Host:
        made = Host(**digests)
        for module in (image, boot, cli):
            monkeypatch.setattr(module, "Compose", made.compose)
        monkeypatch.setattr(image, "prepare_context", made.prepare)
        return made

    return make


HostOf = Callable[..., Host]


@pytest.mark.parametrize("has", ["another version", "no sources"])
def test_another_version_is_not_built(host: HostOf, tmp_path: Path, has: str) -> None:
    here = host(base=None)
    here.context = tmp_path / "\x1bada"
    if has == "another version":
        for name in sources():
            (here.context / "lab" / name).parent.mkdir(parents=True, exist_ok=True)
            (here.context / "lab" / name).write_text("another")
    with pytest.raises(LabError) as caught:
        here.builds()
    assert here.done == here.output == []
    what, _, fix = str(caught.value).partition("; ")
    assert what.startswith("lab:cpu would get another version of lab's code, /")
    assert "/\\x1bada/lab, than this lab has, /" in what
    assert fix == "use the `lab` of that directory, or update both to the same version"


@pytest.mark.parametrize(("tensorflow", "lines"), [("", []), ("tensorflow-cpu==2.20", [True])])
def test_an_image_with_another_tensorflow_is_reported_as_not_locked(
    host: HostOf, tensorflow: str, lines: list[bool]
) -> None:
    here = host(base=None)
    here.builds(replace(IMAGE, tensorflow=tensorflow))
    notice = (
        "LAB_TENSORFLOW is set, so the image is not locked: pip chooses its packages and checks"
    )
    assert [line.startswith(notice) for line in here.output[1:]] == lines


@pytest.mark.parametrize(
    ("digests", "done"),
    [
        ({}, ["build tf1", "up"]),
        ({"cpu": OLD}, ["build tf1", "up"]),
        ({"cpu": None}, ["build tf1", "up"]),
        ({"cpu": HERE}, ["up"]),
    ],
)
def test_a_boot_builds_an_image_that_is_missing_or_old(
    host: HostOf, digests: dict[str, str | None], done: list[str]
) -> None:
    here = host(base=None, **digests)
    here.boots()
    assert here.done == done
    line = "the image lab:cpu has a different version of lab's code; building it"
    assert (line in here.output) == ("cpu" in digests and len(done) > 1)
    assert any("downloads TensorFlow" in each for each in here.output) == (len(done) > 1)


@pytest.mark.parametrize(
    ("digests", "reason"),
    [
        ({"cpu": HERE}, ""),
        ({"cpu": OLD, "base": None}, ""),
        ({"base": None}, ""),
        ({"cpu": OLD}, "the image lab:cpu has a different version of lab's code, and"),
        ({}, "there is no image lab:cpu, and its base python:3.11-slim-bookworm cannot be fetched"),
    ],
)
def test_an_old_image_counts_as_none(
    host: HostOf, digests: dict[str, str | None], reason: str
) -> None:
    here = host(**digests).backend
    assert here.must_build(PLAN, root=Path("/p")) == ("cpu" not in digests)
    found = here.missing_image(PLAN, root=Path("/p")) or ""
    assert found.startswith(reason)
    assert bool(found) == ("tools/base-image.sh" in found) == bool(reason)


def test_a_base_image_that_can_be_pulled_is_enough(host: HostOf) -> None:
    here = host()
    docker_of(here.engine).pull = lambda _: None
    assert here.backend.missing_image(PLAN, root=Path("/p")) is None


def test_an_existing_image_is_used(host: HostOf) -> None:
    there = host(cpu=HERE)
    assert there.backend.missing_image(PLAN, root=Path("/p")) is None
    there.boots()
    assert there.done == ["up"]
