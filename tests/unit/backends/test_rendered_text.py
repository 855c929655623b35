"""The text of a rendered file: escaped, readable, the same every time; and the file itself."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from lab.backends.compose.render import DEFAULTS, render
from lab.backends.names import COMPOSE
from lab.backends.rendered_file import Rendering, RenderOptions, stale_diff, write
from lab.backends.yaml_text import Variable, compose_yaml, dumped
from lab.base.errors import InputError, LabError
from lab.cluster.placement.plan import Plan, PlannedNode, PlannedTask
from lab.verbs.render import recorded
from tests.support.commands import ROOT, python
from tests.support.fakes import os_error, raising
from tests.support.rendering import plan_file, read_header, render_file

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def read(text: str) -> dict[str, Any]:
    """Read it by YAML 1.1 and by YAML 1.2, which must not differ."""
    readers = YAML(typ="safe", pure=True), YAML(typ="safe", pure=True)
    readers[0].version = (1, 1)
    older, newer = (reader.load(text) for reader in readers)
    assert older == newer
    return dict(newer)


@given(st.dictionaries(texts, texts, max_size=5))
@example({"command": " a\n\tb \n"})
def test_any_text_round_trips(texts: dict[str, str]) -> None:
    assert read(dumped([{"x": texts}])) == {"x": texts}


@given(st.dictionaries(texts, texts, max_size=5))
def test_any_text_round_trips_with_doubled_dollars(texts: dict[str, str]) -> None:
    escaped = {key.replace("$", "$$"): value.replace("$", "$$") for key, value in texts.items()}
    if escaped:
        text = compose_yaml({"x": texts, "y": [*texts.values()]}, {})
        assert read(text) == {"x": escaped, "y": [*escaped.values()]}


def test_only_a_variable_keeps_its_dollar() -> None:
    text = compose_yaml({"a": "${HOME}", "b": Variable("${HOME}")}, {})
    assert read(text) == {"a": "$${HOME}", "b": "${HOME}"}


AMBIGUOUS = ("on", "no", "null", "~", "010", "1:30", "1_000", "0o7", "2222")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((text, f'"{text}"') for text in AMBIGUOUS),
        (["b:c", "d?", "e"], "['b:c', 'd?', e]"),  # older readers need the quotation marks
        ("\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{LATIN SMALL LETTER E WITH ACUTE}"),
    ],
)
def test_only_what_a_reader_could_mistake_is_quoted(value: object, text: str) -> None:
    assert compose_yaml({"a": value}, {}) == f"a: {text}\n"


def test_a_comment_is_above_its_key_for_any_value() -> None:
    text = compose_yaml({"name": "a:b:c"}, {"name": "The name."})
    assert text == "# The name.\nname: a:b:c\n"


def test_the_header_has_source_digest_and_mode() -> None:
    plan = plan_file(ROOT / "cluster.yaml")
    text = render(plan, rendering=Rendering("../my.yaml"))
    first, *_ = text.splitlines()
    assert first == "# Rendered from ../my.yaml by `python -m lab render`; do not edit."
    assert f"cluster-sha256={plan.cluster_sha256}\n" in text
    assert "LAB_ONCE" not in text  # there is no run
    assert read_header(text) == RenderOptions("index", "tensorflow")
    assert read_header(text.replace("# lab: gpus=index", "# lab: gpus=all")) is None
    assert read_header(text.replace("gpus-by=nvidia", "gpus-by=guess")) is None
    assert read_header("services: {}\n" * 1000 + text) is None


def test_a_file_name_cannot_leave_its_comment() -> None:
    plan = plan_file(ROOT / "cluster.yaml")
    text = render(plan, rendering=Rendering("a\nprivileged: true\x1b[2J.yaml"))
    assert "\nprivileged" not in text
    assert "\x1b" not in text
    assert read(text).keys() == read(render(plan)).keys()


def test_names_of_a_plan_cannot_become_variables() -> None:
    # The config allows no such name; the rendering does not rely on it.
    task = PlannedTask("worker", 0, "$NODE", 2222, gpus=("${GPU}",))
    plan = Plan("$PROJECT", "uuid", "0" * 64, (PlannedNode("$NODE"),), (task,))
    text = render(plan, rendering=Rendering("cluster.yaml"))
    for name in ("PROJECT", "NODE", "{GPU}"):
        assert f"$${name}" in text
        assert f"${name}" not in text.replace("$$", "")


def test_gpus_by_cdi() -> None:
    options = RenderOptions("index", own={"gpus-by": "cdi"})
    text = render_file(ROOT / "cluster.yaml", options)
    assert read_header(text) == RenderOptions("index", "tensorflow", own={"gpus-by": "cdi"})
    services = read(text)["services"]
    (request,) = devices(services["worker-0"])
    # compose requires capabilities; a count and options are errors of the engine's CDI driver.
    assert request == {
        "driver": "cdi",
        "device_ids": ["nvidia.com/gpu=2", "nvidia.com/gpu=3"],
        "capabilities": ["gpu"],
    }
    # Otherwise a CUDA image would request all GPUs by this variable.
    assert services["worker-0"]["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "CUDA_VISIBLE_DEVICES" not in services["worker-0"]["environment"]
    assert services["worker-0"]["labels"]["lab.gpus"] == "2,3"
    by_uuid = plan_with_uuids("GPU-5f2a", "MIG-77")
    text = render(by_uuid, {**DEFAULTS, "gpus-by": "cdi"})
    (request,) = devices(read(text)["services"]["worker-0"])
    assert request["device_ids"] == ["nvidia.com/gpu=GPU-5f2a", "nvidia.com/gpu=MIG-77"]
    (request,) = devices(read(render(by_uuid))["services"]["worker-0"])
    assert request["device_ids"] == ["GPU-5f2a", "MIG-77"]


def devices(service: dict[str, Any]) -> list[dict[str, Any]]:
    return service["deploy"]["resources"]["reservations"]["devices"]


def plan_with_uuids(*gpus: str) -> Plan:
    plan = plan_file(ROOT / "cluster.yaml")
    tasks = tuple(
        replace(task, gpus=gpus if task.name == "worker-0" else task.gpus) for task in plan.tasks
    )
    return replace(plan, tasks=tasks)


def test_limits_of_memory_are_in_mebibytes() -> None:
    plan = plan_file(ROOT / "cluster.yaml")
    tasks = tuple(replace(each, memory_bytes=6_171_023 * 1024) for each in plan.tasks)
    assert "mem_limit: 6027m\n" in render(replace(plan, tasks=tasks))


def test_the_network_can_be_isolated() -> None:
    isolated = render_file(
        ROOT / "cluster.yaml", RenderOptions("index", own={"network": "isolated"})
    )
    portable = render_file(ROOT / "cluster.yaml")
    assert read_header(isolated) == RenderOptions(
        "index", "tensorflow", own={"network": "isolated"}
    )
    options = read(isolated)["networks"]["cluster"]["driver_opts"]
    mode = "com.docker.network.bridge.gateway_mode_ipv"
    assert options == {
        "com.docker.network.driver.mtu": "65535",
        f"{mode}4": "isolated",
        f"{mode}6": "isolated",
    }
    assert mode not in portable
    for text in (isolated, portable):
        assert read(text)["networks"]["cluster"]["internal"] is True
        assert read(text)["networks"]["cluster"]["enable_ipv6"] is False
    assert "render -o network=isolated" in portable
    assert "render -o network=isolated" not in isolated


def test_the_older_tensorflow_has_an_image_of_its_own_with_horovod() -> None:
    text = render_file(ROOT / "cluster.yaml", RenderOptions("index", "tensorflow-2.15", "none"))
    assert read_header(text) == RenderOptions("index", "tensorflow-2.15", "none")
    assert "image: ${LAB_IMAGE:-lab:heritage-cuda}\n" in text
    build = read(text)["services"]["tf1"]["build"]
    assert build["args"] == {
        "BASE_IMAGE": "${LAB_BASE_IMAGE:-python:3.11-slim-bookworm}",
        "REQUIREMENTS": "image-heritage-cuda",
        "TENSORFLOW": "${LAB_TENSORFLOW:-}",
        "HOROVOD": "horovod",
    }


def test_the_source_is_named_from_the_rendered_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "clusters" / "a.yaml"
    config.parent.mkdir()
    config.write_bytes((ROOT / "clusters" / "book.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)
    relative = render_file(Path("clusters/a.yaml"))
    assert relative.startswith("# Rendered from clusters/a.yaml by")
    monkeypatch.chdir("/")
    assert render_file(config, relative_to=tmp_path) == relative


def test_a_stale_file_is_shown_with_its_control_characters_visible(tmp_path: Path) -> None:
    file = tmp_path / "docker-compose.yml"
    file.write_bytes(b"same\n\x1b[2Jold \xff\n")
    assert stale_diff(file, "same\nnew\n") == (
        f"--- {file}\n+++ {file} (rendered again)\n@@ -1,2 +1,2 @@\n same\n"
        "-\\x1b[2Jold \N{REPLACEMENT CHARACTER}\n+new\n"
    )
    file.write_bytes(b"same\r\n")
    assert stale_diff(file, "same\n") == f"{file}: its line endings differ\n"
    assert stale_diff(file, "same\r\n") == ""


def test_a_missing_file_counts_as_empty(tmp_path: Path) -> None:
    file = tmp_path / "docker-compose.yml"
    assert recorded(file, COMPOSE) is None
    assert stale_diff(file, "") == ""
    assert stale_diff(file, "new\n") == (
        f"--- {file}\n+++ {file} (rendered again)\n@@ -0,0 +1 @@\n+new\n"
    )


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as unreadable:
        recorded(tmp_path, COMPOSE)
    assert unreadable.value.what == f"{tmp_path} cannot be read (Is a directory)"
    with pytest.raises(LabError) as unwritable:
        write(tmp_path, "text")
    assert unwritable.value.what == f"{tmp_path} cannot be written (Is a directory)"
    (tmp_path / "file").touch()
    below_a_file = tmp_path / "file" / "out.yml"
    with pytest.raises(LabError) as neither:
        write(below_a_file, "text")
    assert neither.value.what == f"{below_a_file} cannot be written (Not a directory)"
    for caught in (unreadable, unwritable, neither):
        assert caught.value.fix == "name another file with `--output`"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "out.yml"
    write(file, "old\n")
    monkeypatch.setattr("os.fsync", raising(os_error(errno.ENOSPC)))
    with pytest.raises(LabError, match="No space left"):
        write(file, "new\n")
    assert file.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [file]


def test_rendering_needs_neither_docker_nor_tensorflow_nor_the_driver() -> None:
    code = "import sys, lab.verbs.render; print(*sys.modules)"
    loaded = python("-c", code, cwd=ROOT, check=True).stdout.split()
    assert not {"docker", "tensorflow", "pynvml", "numpy", "rich", "fire"} & set(loaded)
