"""An image with another version of lab's own code; the engine is made up."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest

from lab.backends.compose import backend
from lab.backends.compose import image_build as image
from lab.backends.compose import image_sources as sources
from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.cleanup import NO_RESOURCES
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.image_build import Image, ImageBuilder
from lab.backends.engine.client import Engine
from lab.errors import LabError
from lab.image_digest import IN_IMAGE, digest
from lab.log import shown_by
from lab.placement.plan import Plan
from tests.support.containers import inspected
from tests.support.fakes import PLAN

BASE = "python:3.11-slim-bookworm"
IMAGE = Image("tf1", "lab:cpu", BASE, "image-cpu")
MINE = replace(IMAGE, name="lab:mine")
HERITAGE = replace(PLAN, runtime="tensorflow-2.15")
HERE = f"{digest()}\n".encode()
OLD = b"0" * 64 + b"\n"


def an_archive(content: bytes | None) -> bytes:
    """As the engine gives a file; None: a directory."""
    member = tarfile.TarInfo("sources.sha256")
    if content is None:
        member.type = tarfile.DIRTYPE
    else:
        member.size = len(content)
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        tar.addfile(member, io.BytesIO(content or b""))
    return written.getvalue()


def pieces(archive: bytes) -> Iterator[bytes]:
    """The chunks in order; the test must not wait for an endless stream."""
    for start in range(0, len(archive), 100):
        assert start < 10**5
        yield archive[start : start + 100]


@dataclass
class Docker:
    """The used part of docker-py's client: images by name, containers by id, each with a file."""

    files: dict[str, bytes | None] = field(default_factory=dict)
    inspected: list[dict[str, Any]] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    asked: int = 0

    @property
    def images(self) -> Any:
        def registry(_: str) -> None:
            raise docker.errors.APIError("no registry")

        return SimpleNamespace(
            get=self._image,
            get_registry_data=registry,
        )

    @property
    def containers(self) -> Any:
        listed = [
            SimpleNamespace(attrs=each, labels=each["Config"]["Labels"], status="running")
            for each in self.inspected
        ]
        return SimpleNamespace(create=self._create, get=self._get, list=lambda **_: listed)

    def _image(self, name: str) -> Any:
        if name not in self.files:
            raise docker.errors.ImageNotFound("404", explanation=f"No such image: {name}")
        return SimpleNamespace(id=f"{name}#{hash(self.files[name])}")

    def _create(self, image: str, command: list[str], **options: Any) -> Any:
        labels = {"com.docker.compose.project": "", "lab.reader": "mnist", "lab.project": "mnist"}
        assert options["labels"] == labels
        assert options["network_mode"] == "none"
        name = image.partition("#")[0]  # another image has another id
        self.made.append(name)
        return self._get(name)

    def _get(self, name: str) -> Any:
        self.asked += 1
        if name not in self.files:
            raise docker.errors.NotFound("404", explanation=f"No such container: {name}")

        def get_archive(path: str) -> tuple[Iterator[bytes], Mapping[str, Any]]:
            assert path == IN_IMAGE
            file = self.files[name]
            if file == b"":
                raise docker.errors.NotFound("404", explanation="Could not find the file")
            return pieces(an_archive(file)), {"name": "sources.sha256"}

        def remove(*, v: bool, force: bool) -> None:
            assert v
            assert force
            self.made.remove(name)

        return SimpleNamespace(get_archive=get_archive, remove=remove)


def an_engine(**files: bytes | None) -> Engine:
    """An engine with images: `cpu=…` is `lab:cpu`, `base=…` is its base image."""
    engine = Engine()
    names = {"base": BASE}
    engine._local.client = Docker({names.get(name, f"lab:{name}"): files[name] for name in files})
    return engine


def docker_of(engine: Engine) -> Docker:
    client: Any = engine.client()
    assert isinstance(client, Docker)
    return client


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is kept which image holds which version."""
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


# ---- The version of an image, and of a container


@pytest.mark.parametrize(
    ("file", "output"),
    [
        (HERE, digest()),
        (OLD, "0" * 64),
        (b"", ""),  # there is none
        (None, ""),
        (b"\x1b]0;owned\x07" + b"0" * 53 + b"\n", ""),
        (b"0" * 64, ""),
        (b"0" * 200_000, ""),
    ],
    ids=["this", "another", "none", "a directory", "an escape", "no line", "too much"],
)
def test_an_image_names_its_version(file: bytes | None, output: str) -> None:
    engine = an_engine(cpu=file)
    assert sources.image_digest(engine, "lab:cpu", "mnist") == output
    assert docker_of(engine).made == []


@pytest.mark.parametrize(
    ("first", "second", "output"),
    [(OLD, OLD, "0" * 64), (OLD, HERE, ""), (HERE, b"", ""), (HERE, HERE, digest())],
    ids=["old", "both", "one says none", "this"],
)
def test_an_environment_has_the_version_of_all_its_containers(
    first: bytes, second: bytes, output: str
) -> None:
    engine = Engine()
    containers = [inspected() | {"Id": f"c{n}", "Image": f"sha256:{n}"} for n in (0, 1)]
    containers.append(inspected() | {"Id": "c2", "Image": "sha256:1"})
    files: dict[str, bytes | None] = {"c0": first, "c1": second, "c2": second}
    engine._local.client = Docker(files, containers)
    assert ComposeEnvironment(engine, "mnist").sources_sha256 == output


def test_an_image_is_read_once(state: Path) -> None:
    """An image never changes under its id; its version is read once."""
    engine = an_engine(cpu=HERE, none=b"")
    image_id = engine.client().images.get("lab:cpu").id
    for _ in range(3):
        assert sources.container_digest(engine, "lab:cpu", image_id) == digest()
        assert sources.image_digest(engine, "lab:cpu", "mnist") == digest()
    assert docker_of(engine).asked == 1
    # A missing version may have another reason, and is read again.
    for _ in range(2):
        assert sources.container_digest(engine, "lab:none", "another") == ""
        assert "another" not in sources._cached()
    assert docker_of(engine).asked == 3
    for text in ("{", "[]", json.dumps({image_id: 1})):
        (state / "compose" / "images.json").write_text(text)
        assert sources.container_digest(engine, "lab:cpu", image_id) == digest()
    assert docker_of(engine).asked == 6


# ---- Consequences


def builder(engine: Engine, wanted: Image, plan: Plan = PLAN, compose: Any = None) -> ImageBuilder:
    return ImageBuilder(engine, plan, compose, wanted)


def test_an_image_named_by_the_user_is_unchanged() -> None:
    with pytest.raises(LabError) as caught:
        builder(an_engine(mine=OLD), MINE).status()
    assert str(caught.value) == (
        "the image lab:mine (LAB_IMAGE) holds another version of lab's code than this lab; if"
        " `lab build` made it, run `lab build` again; if you built it on lab:cpu, run"
        " `LAB_IMAGE= lab build` and then your own build"
    )
    with pytest.raises(LabError, match=r"lab:mine .LAB_HERITAGE_IMAGE. .* on lab:heritage-cpu, r"):
        builder(an_engine(mine=OLD), MINE, HERITAGE).status()


class Host:
    """A host with these images, and a `docker compose` whose build gives the image this file.

    Attributes:
        output: The notices.
        done: What compose has done.
        refusal: Why compose refuses its builder, or None.
    """

    def __init__(self, built: bytes = HERE, **files: bytes | None) -> None:
        self.engine = an_engine(**files)
        self.built = built
        self.output: list[str] = []
        self.done: list[str] = []
        self.refusal: LabError | None = None
        self.root = Path("/p")
        self.prepared = False
        self.backend = ComposeBackend()
        self.backend._engine = self.engine

    def compose(self, *_: object) -> Host:
        return self

    def config(self) -> dict[str, Any]:
        arguments = {"BASE_IMAGE": BASE, "REQUIREMENTS": "image-cpu", "TENSORFLOW": ""}
        return {"services": {"tf1": {"image": "lab:cpu", "build": {"args": arguments}}}}

    def prepare(self, root: Path) -> None:
        assert root == self.root
        self.prepared = True

    def build(self, service: str) -> None:
        assert self.prepared, "the image's sources may be those of an older lab"
        self.done.append(f"build {service}")
        docker_of(self.engine).files["lab:cpu"] = self.built

    def up(self) -> None:
        self.done.append("up")

    def builds(self, wanted: Image = IMAGE, plan: Plan = PLAN, root: str = "/p") -> None:
        """Build an image without a boot."""
        self.root = Path(root)
        with shown_by(self.output.append):
            builder(self.engine, wanted, plan, self).build()

    def boots(self) -> None:
        with shown_by(self.output.append):
            self.backend.up(PLAN, root=Path("/p"))

    def require_builder(self) -> None:
        if self.refusal is not None:
            raise self.refusal


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Host]:
    """Makes a host, whose backend only builds and boots."""
    monkeypatch.setenv("LAB_STATE", str(tmp_path))
    monkeypatch.setattr(backend, "list_resources", lambda *_: NO_RESOURCES)
    for name in ("remove", "wait_until_up", "restart_detached_tasks"):
        monkeypatch.setattr(backend, name, lambda *_, **__: None)
    monkeypatch.setattr(backend, "docker", lambda: "docker")
    monkeypatch.setattr(ComposeEnvironment, "block_host", lambda *_: None)
    monkeypatch.setattr(backend, "compose_version", lambda: "2.40.3")

    def make(built: bytes = HERE, **files: bytes | None) -> Host:
        made = Host(built, **files)
        for module in (image, backend):
            monkeypatch.setattr(module, "Compose", made.compose)
            monkeypatch.setattr(module, "require_builder", made.require_builder)
        monkeypatch.setattr(image, "prepare_context", made.prepare)
        return made

    return make


HostOf = Callable[..., Host]


def test_a_build_from_another_version_does_not_count(host: HostOf) -> None:
    here = host(OLD, base=b"")
    with pytest.raises(LabError) as caught:
        here.builds(root="/home/\x1bada")
    assert here.done == ["build tf1"]
    what, _, fix = str(caught.value).partition("; ")
    assert what.startswith("the image lab:cpu was built from another version of lab's code, ")
    assert "/home/\\x1bada/lab, than this lab has, /" in what
    assert fix == "use the `lab` of that directory, or update both to one version"


@pytest.mark.parametrize(
    ("tensorflow", "plan", "variable"),
    [
        ("", PLAN, ""),
        ("tensorflow-cpu==2.20", PLAN, "LAB_TENSORFLOW"),
        ("tensorflow-cpu==2.20", HERITAGE, "LAB_HERITAGE_TENSORFLOW"),
    ],
)
def test_an_image_with_another_tensorflow_is_reported_as_not_locked(
    host: HostOf, tensorflow: str, plan: Plan, variable: str
) -> None:
    here = host(base=b"")
    here.builds(replace(IMAGE, tensorflow=tensorflow), plan)
    notice = f"{variable} is set, so the image is not locked: pip chooses its packages and checks"
    assert [line.startswith(notice) for line in here.output[1:]] == ([True] if variable else [])


@pytest.mark.parametrize(
    ("files", "done"),
    [
        ({}, ["build tf1", "up"]),
        ({"cpu": OLD}, ["build tf1", "up"]),
        ({"cpu": b""}, ["build tf1", "up"]),
        ({"cpu": HERE}, ["up"]),
    ],
)
def test_a_boot_builds_an_image_that_is_missing_or_old(
    host: HostOf, files: dict[str, bytes], done: list[str]
) -> None:
    here = host(base=b"", **files)
    here.boots()
    assert here.done == done
    line = "the image lab:cpu holds another version of lab's code than this lab; building it again"
    assert (line in here.output) == ("cpu" in files and len(done) > 1)
    assert any("downloads TensorFlow" in each for each in here.output) == (len(done) > 1)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"cpu": HERE}, ""),
        ({"cpu": OLD, "base": b""}, ""),
        ({"base": b""}, ""),
        ({"cpu": OLD}, "the image lab:cpu holds another version of lab's code than this lab, and"),
        ({}, "there is no image lab:cpu, and its base python:3.11-slim-bookworm cannot be fetched"),
    ],
)
def test_an_old_image_counts_as_none(host: HostOf, files: dict[str, bytes], reason: str) -> None:
    here = host(**files).backend
    assert here.must_build(PLAN, root=Path("/p")) == ("cpu" not in files)
    found = here.missing_image(PLAN, root=Path("/p")) or ""
    assert found.startswith(reason)
    assert bool(found) == ("tools/base-image.sh" in found) == bool(reason)


def test_without_a_builder_nothing_is_built_and_an_existing_image_is_used(host: HostOf) -> None:
    here = host(base=b"")
    here.refusal = LabError("building an image: buildx is too old", "install it")
    reason = "building an image: buildx is too old; install it"
    assert here.backend.missing_image(PLAN, root=Path("/p")) == reason
    with pytest.raises(LabError, match="buildx is too old"):
        here.builds()
    assert (here.done, here.output) == ([], [])
    there = host(cpu=HERE)
    there.refusal = here.refusal
    assert there.backend.missing_image(PLAN, root=Path("/p")) is None
    there.boots()
    assert there.done == ["up"]
