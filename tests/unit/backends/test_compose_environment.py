"""The parts of an environment of containers, and the requests to its volume."""

from __future__ import annotations

import copy
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.volume import ComposeVolume, upload
from lab.backends.engine.client import Engine
from lab.backends.engine.containers import parse_inspection
from lab.base.errors import LabError
from lab.protocol.volume.framing import TICK
from tests.support.containers import INSPECTED, an_engine, inspected


def a_reader() -> dict[str, Any]:
    """The leftover of a killed `lab attach`: it has the project's label, and reads."""
    made = copy.deepcopy(INSPECTED)
    made["Id"], made["Name"] = "decaf", "/odd_name"
    made["Config"]["Labels"] = {"lab.project": "mnist", "lab.reader": "mnist"}
    return made


def backend_with(*containers: dict[str, Any]) -> ComposeBackend:
    backend = ComposeBackend()
    backend._engine = an_engine(*containers)
    return backend


def test_an_environment_has_its_folder_and_its_config() -> None:
    environment = ComposeEnvironment(an_engine(inspected()), "mnist")
    assert (environment.folder, environment.cluster_sha256) == ("/home/ada", "abc")
    # Its compose file is in another directory than its programs.
    elsewhere = inspected()
    elsewhere["HostConfig"]["Mounts"] = [
        {"Type": "bind", "Source": "/home/bob/scripts", "Target": "/lab/scripts"}
    ]
    assert ComposeEnvironment(an_engine(elsewhere), "mnist").folder == "/home/bob"
    nothing = ComposeEnvironment(an_engine(), "mnist")
    assert (nothing.folder, nothing.cluster_sha256) == ("", "")


@pytest.mark.parametrize(("name", "is_here"), [(platform.node(), True), ("elsewhere", False)])
def test_a_remote_engine_is_identified_by_its_name(name: str, is_here: bool) -> None:
    engine = an_engine(inspected())
    engine.client().info = lambda: {"Name": name}
    assert ComposeEnvironment(engine, "mnist").is_local is is_here


def test_a_container_that_reads_the_volume_is_no_part_of_an_environment() -> None:
    started = {"Path": "python", "Args": []}
    both = ComposeEnvironment(an_engine(a_reader() | started, inspected() | started), "mnist")
    assert [each.id for each in both.inspect()] == ["c0ffee"]
    assert [each["Name"] for each in both._containers()] == ["/mnist-worker-1-1"]
    backend = backend_with(a_reader())
    assert backend.find("mnist") is None
    assert backend.all() == []
    backend = backend_with(a_reader(), inspected())
    assert backend.find("mnist") is not None
    assert [each.project for each in backend.all()] == ["mnist"]


@pytest.mark.parametrize(
    ("task", "cluster"),
    [
        ("../../etc-0", '{"../../etc": ["tf1:1"]}'),
        ("worker", '{"worker": ["tf1:1"]}'),
        ("worker-x", '{"worker": ["tf1:1"]}'),
        ("worker-1", '{"worker": ["tf1:1"]}'),
        ("worker-0", '{"worker": ["tf1:1"], "../../etc": ["tf2:1"]}'),
        ("worker-0", '{"worker": "tf1:1"}'),
        ("worker-0", '{"worker": [1]}'),
        ("worker-0", '["worker"]'),
        ("worker-0", "noise"),
        ("worker-0", "[" * 100_000),
        ("worker-0", ""),
    ],
)
def test_foreign_task_labels_are_ignored(task: str, cluster: str) -> None:
    config = INSPECTED["Config"]
    foreign = {
        **INSPECTED,
        "Id": "bad",
        "Config": {
            **config,
            "Labels": {**config["Labels"], "lab.task": task},
            "Env": [f"LAB_CLUSTER={cluster}"],
        },
    }
    seen = parse_inspection(foreign)
    assert (seen.task, seen.node) == ("", "")
    environment = ComposeEnvironment(an_engine(foreign, INSPECTED), "mnist")
    assert [each.task for each in environment.tasks()] == ["worker-1"]
    assert environment.cluster_spec() == {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]}


def test_the_output_of_a_task_is_read_by_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    environment, asked = ComposeEnvironment(an_engine(inspected()), "mnist"), Mock()
    asked.get.return_value.logs.return_value = iter([b"one\ntw", b"o \x1b[2J\nend"])
    client = environment._engine.client()
    # Its output is read in a thread.
    monkeypatch.setattr(Engine, "client", lambda _: client)
    client.containers.get = asked.get
    lines = list(environment.logs(["worker-1"], follow=True, tail=3, since=5.5))
    assert lines == ["worker-1  | one", r"worker-1  | two \x1b[2J", "worker-1  | end"]
    read = asked.get.return_value.logs.call_args.kwargs
    assert read == {"stream": True, "follow": True, "tail": 3, "since": 5.5}


def test_a_broken_stream_resumes_through_another_container() -> None:
    """The engine shows a container as running for a short time after its end."""
    other = copy.deepcopy(inspected())
    other["Id"], other["Config"]["Labels"]["lab.task"] = "0ther", "worker-0"
    engine = an_engine(inspected(), other)
    output = b"OCI runtime exec failed: exec failed: unable to start container process\r\n"
    api = Mock(exec_start=lambda *_, **__: (piece for piece in [(output, None)]))
    api.exec_create.return_value = {"Id": "exec"}
    api.exec_inspect.return_value = {"ExitCode": 126}
    engine.client().api = api
    environment = ComposeEnvironment(engine, "mnist")
    for _ in range(2):
        with pytest.raises(LabError, match="stopped: not a frame"):
            list(environment.stream("r1", {}, follow=True))
    assert sorted(call.args[0] for call in api.exec_create.call_args_list) == ["0ther", "c0ffee"]


@pytest.mark.parametrize("files", [0, 1, 20_000])
def test_offsets_of_many_files_fit_into_arguments(
    files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = Mock(return_value=(each for each in [TICK]))
    monkeypatch.setattr(ComposeVolume, "pipe", pipe)
    offsets = {f"model/a file with a \u00fc/{number}": number for number in range(files)}
    list(ComposeEnvironment(an_engine(), "mnist").stream("r", offsets, follow=True))
    ship, run_id, *arguments, switch = pipe.call_args.args
    assert (ship, run_id, switch) == ("ship", "r", "--follow")
    assert all(len(word.encode()) <= 100_000 for word in arguments)
    assert (len(arguments) > 1) == (files > 1)
    merged: dict[str, int] = {}
    for word in arguments:
        merged |= json.loads(word)
    assert merged == offsets


def test_uploaded_files_belong_to_the_user_of_the_tasks(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir(mode=0o700)
    (tmp_path / "sub/b.py").write_text("b = 1")
    (tmp_path / "a.py").symlink_to(tmp_path / "sub/b.py")
    (tmp_path / "sub/b.py").chmod(0o600)
    engine, put_archive = an_engine(), Mock(return_value=True)
    engine.client().api.put_archive = put_archive
    upload(engine, "c0ffee", "r1", {"program": tmp_path})
    with tarfile.open(fileobj=io.BytesIO(put_archive.call_args.args[2])) as archive:
        entries = archive.getmembers()
        file = archive.extractfile("incoming/r1/program/a.py")
        assert file.read() == b"b = 1"
    assert [(each.name, each.isdir(), f"{each.mode:o}") for each in entries] == [
        ("incoming", True, "755"),
        ("incoming/r1", True, "755"),
        ("incoming/r1/program", True, "755"),
        ("incoming/r1/program/a.py", False, "644"),
        ("incoming/r1/program/sub", True, "755"),
        ("incoming/r1/program/sub/b.py", False, "644"),
    ]
    assert {(each.uid, each.gid, each.uname, each.mtime) for each in entries} == {
        (1000, 1000, "", 0)
    }


def test_a_stopped_environment_is_read_by_a_restricted_container() -> None:
    engine = an_engine(inspected(Status="exited"), volumes=("mnist_runs",))
    reader = Mock()
    reader.attach.return_value = iter([(b"{}", None)])
    reader.wait.return_value = {"StatusCode": 0}
    create = Mock(return_value=reader)
    engine.client().containers.create = create
    assert ComposeEnvironment(engine, "mnist").collected() == {}
    assert [each[0] for each in reader.method_calls] == ["attach", "start", "wait", "remove"]
    assert create.call_args.args == (
        "sha256:beef",
        ["python", "-m", "lab.protocol.volume", "collected"],
    )
    asked = create.call_args.kwargs
    assert asked["volumes"] == {"mnist_runs": {"bind": "/runs", "mode": "rw"}}
    assert asked["environment"] == {"LAB_RUNS": "/runs"}
    assert (asked["network_mode"], asked["read_only"], asked["cap_drop"]) == ("none", True, ["ALL"])
    assert asked["security_opt"] == ["no-new-privileges"]
    # `docker compose up` shows every container with the project's label, and the image has it.
    assert asked["labels"] == {
        "lab.project": "mnist",
        "lab.reader": "mnist",
        "com.docker.compose.project": "",
    }
