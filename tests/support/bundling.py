"""Bundles for unit tests: small ones, and an engine that holds images in memory."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest

from lab.backends.engine.client import Engine, engine_errors
from lab.bundle import content, writing
from lab.bundle.archive import Manifest, Writer
from lab.bundle.content import Wheels
from lab.volume.decoding import from_json

LARGE = bytes(range(256)) * 8192
"""A layer of 2 MiB."""


@dataclass
class FakeImage:
    """An image: its config, and its layers as bytes."""

    config: bytes
    layers: tuple[bytes, ...]

    @property
    def id(self) -> str:
        return f"sha256:{hashlib.sha256(self.config).hexdigest()}"


def an_image(*layers: bytes) -> FakeImage:
    ids = [hashlib.sha256(each).hexdigest() for each in layers]
    return FakeImage(json.dumps({"rootfs": {"diff_ids": ids}}).encode(), layers)


@dataclass
class FakeEngine:
    """An engine: images by their ids, and the id of each name.

    Attributes:
        patch: What lets lab use it.
        stored: Images by their ids.
        names: Ids by the names of images.
        accepts: The number of images that it still takes.
        silent: Whether it does not answer.
    """

    patch: pytest.MonkeyPatch = field(repr=False, compare=False)
    stored: dict[str, FakeImage] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    accepts: int = field(default=100, compare=False)
    silent: bool = False

    def add(self, name: str, image: FakeImage) -> None:
        self.stored[image.id] = image
        self.names[name] = image.id

    def install(self) -> None:
        """Let lab use it."""
        api = SimpleNamespace(get_image=self._save, load_image=self._load, tag=self._tag)
        images = SimpleNamespace(list=self._list, remove=self._remove)
        client = SimpleNamespace(api=api, images=images, version=lambda: {"Version": "28.0"})

        def ask(_: Engine) -> Any:
            with engine_errors("reaching the engine"):
                if self.silent:
                    raise docker.errors.DockerException("Error while fetching server API version")
                return client

        self.patch.setattr(Engine, "client", ask)

    def _list(self, *, all: bool) -> list[FakeImage]:  # noqa: A002
        assert all
        return [*self.stored.values()]

    def _remove(self, image_id: str) -> None:
        assert image_id not in self.names.values(), "an image with a name was removed"
        del self.stored[image_id]

    def _tag(self, image_id: str, repository: str, tag: str) -> None:
        self.names[f"{repository}:{tag}"] = image_id

    def _save(self, name: str) -> Iterator[bytes]:
        """As Docker Engine 20.10: a directory for each layer, equal layers are links."""
        image = self.stored[self.names[name]]
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            paths: dict[bytes, str] = {}
            listed = []
            for number, layer in enumerate(image.layers):
                path = f"layer-{number}/layer.tar"
                listed.append(path)
                if layer in paths:
                    link = tarfile.TarInfo(path)
                    link.type, link.linkname = tarfile.SYMTYPE, f"../{paths[layer]}"
                    archive.addfile(link)
                else:
                    paths[layer] = path
                    _add(archive, path, layer)
            config = f"{image.id.removeprefix('sha256:')}.json"
            _add(archive, config, image.config)
            described = [{"Config": config, "RepoTags": [name, "other:1"], "Layers": listed}]
            _add(archive, "manifest.json", json.dumps(described).encode())
            _add(archive, "repositories", b"{}")
        data = made.getvalue()
        return (data[start : start + 1000] for start in range(0, len(data), 1000))

    def _load(self, data: Iterable[bytes], *, quiet: bool) -> Iterator[dict[str, str]]:
        assert not quiet
        with tarfile.open(fileobj=io.BytesIO(b"".join(data))) as archive:
            read = {each.name: archive.extractfile(each).read() for each in archive}
        (described,) = json.loads(read["manifest.json"])
        assert described["RepoTags"] is None
        assert read.keys() == {"manifest.json", described["Config"], *described["Layers"]}
        self.accepts -= 1
        if self.accepts < 0:
            yield {"error": "write /layer.tar: no space left on device"}
            return
        image = FakeImage(read[described["Config"]], tuple(read[e] for e in described["Layers"]))
        self.stored[image.id] = image
        yield {"stream": f"Loaded image ID: {image.id}\n"}


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def without_downloads(monkeypatch: pytest.MonkeyPatch, images: list[str]) -> dict[str, bytes]:
    """Let `lab bundle` have these wheels and images, and one page; the wheels can be changed."""
    wheels = {"gpulab-0.2.0-py3-none-any.whl": b"lab", "numpy-2.0-cp311-x86_64.whl": b"numpy"}

    def download(sets: list[Wheels], folder: Path) -> None:
        for each in sets:
            (folder / each.environment).mkdir()
            for name, data in wheels.items():
                (folder / each.environment / name).write_bytes(data)

    def documents(folder: Path) -> tuple[list[tuple[str, Path]], str]:
        folder.mkdir()
        (folder / "index.html").write_text("<title>lab</title>")
        return [("documents/index.html", folder / "index.html")], "index.html"

    monkeypatch.setattr(writing, "download", download)
    monkeypatch.setattr(writing, "documents", documents)
    monkeypatch.setattr(writing, "_images", lambda _: images)
    monkeypatch.setattr(content, "SHIPPED", Path("/nothing-is-shipped"))
    return wheels


def rewritten(
    file: Path,
    *,
    change: Callable[[Manifest], Manifest] = lambda each: each,
    leave_out: str = "",
    add: dict[str, bytes] | None = None,
) -> None:
    """Write a bundle anew: with another manifest that has its checksum, or other members."""
    with tarfile.open(file) as archive:
        members = {each.name: archive.extractfile(each).read() for each in archive}
    known = json.loads(members.pop("manifest.json"))
    del members["manifest.sha256"]
    manifest = change(from_json(json.dumps(known), Manifest, "manifest"))
    with file.open("wb") as output:
        writer = Writer(output)
        for name, data in (members | (add or {})).items():
            if name != leave_out:
                writer.plain(name, data)
        writer.finish(manifest)


def renamed(name: str, to: str) -> Callable[[Manifest], Manifest]:
    """Give a file of a manifest another path."""
    return lambda each: replace(
        each, files={to if path == name else path: blob for path, blob in each.files.items()}
    )
