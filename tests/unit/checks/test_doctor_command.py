"""The doctor's report, and the command: which checks run, and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from lab.backends.checks import Check, Outcome, Status
from lab.backends.compose import backend as compose
from lab.backends.engine import info
from lab.backends.engine.client import Engine
from lab.backends.local import checks
from lab.checks import gpus, host
from lab.checks.report import Report
from lab.cli import main
from lab.cluster.gpu import Condition, Inventory
from tests.support.cli import Cli
from tests.support.doctor import BOX, CLUSTER, ENGINE, NO_BOX, fault, told

OK, WARNING, FAILED, SKIPPED = Status.OK, Status.WARNING, Status.FAILED, Status.SKIPPED


def a_check(status: Status, *, stops: bool = False, name: str = "first") -> Check:
    return Check(name, lambda: Outcome(status, "what", "fix it", stops=stops))


def test_an_area_ends_at_a_check_that_stops() -> None:
    shown: list[Outcome] = []
    watched: list[str] = []
    report = Report(shown.append, watched.append, ["local"])
    later = a_check(OK, name="later")
    assert report.examine("host", [a_check(OK), later])
    assert report.examine("GPUs", [a_check(WARNING), later])
    assert not report.examine("local", [a_check(WARNING, stops=True), later])
    assert watched == ["host: first", "host: later", "GPUs: first", "GPUs: later", "local: first"]
    assert report.outcomes == shown
    assert [(each.area, each.where) for each in shown][-1] == ("local", "first")


@pytest.mark.parametrize(
    ("areas", "sentence", "ok", "with_gpus"),
    [
        ({}, "GPUs: no (no backend)", False, False),
        ({"compose": OK}, "compose: yes; GPUs: no (no backend)", True, True),
        # One backend is enough.
        (
            {"GPUs": OK, "compose": FAILED, "local": OK, "GPUs by local": WARNING},
            "compose: no (first); local: yes; GPUs: yes",
            True,
            True,
        ),
        ({"compose": FAILED, "local": FAILED}, "compose: no (first); local: no (first)", False, 0),
        # Where the config asks for GPUs, a broken driver is a fault, and so is a missing toolkit.
        ({"GPUs": FAILED, "local": OK}, "local: yes; GPUs: no (first)", True, False),
        (
            {"compose": OK, "GPUs by compose": FAILED, "local": OK, "GPUs by local": FAILED},
            "compose: yes; local: yes; GPUs: no (first)",
            True,
            False,
        ),
        ({"compose": OK, "GPUs by compose": FAILED, "local": OK, "GPUs by local": OK},
         "compose: yes; local: yes; GPUs: yes", True, True),
        # A host without a GPU trains on CPUs, and a backend that does not apply is not named.
        ({"GPUs": SKIPPED, "local": OK, "compose": SKIPPED}, "local: yes; GPUs: no (first)", 1, 1),
        ({"host": FAILED, "local": OK}, "local: no (first); GPUs: no (first)", False, False),
    ],
)  # fmt: skip
def test_the_result(areas: Mapping[str, Status], sentence: str, ok: bool, with_gpus: bool) -> None:
    for wants, result in ((False, ok), (True, with_gpus)):
        report = Report(backends=["compose", "local"], wants_gpus=wants)
        for area, status in areas.items():
            report.examine(area, [a_check(status, stops=status is SKIPPED)])
        assert report.sentence().startswith(sentence), report.sentence()
        assert report.ok is bool(result), wants
        found = report.as_json()
        assert (found["ok"], len(found["findings"])) == (report.ok, len(areas))
        assert found["usable"]["gpus"] == report.sentence().endswith("GPUs: yes")


WITHOUT_COMPOSE = """\
printf "unknown flag: --project-name\n\nRun 'docker --help' for more information\n" >&2
exit 125
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").write_text(f"#!/bin/sh\n{WITHOUT_COMPOSE}")
    (tmp_path / "bin/docker").chmod(0o755)
    (tmp_path / "room").mkdir()
    (tmp_path / "room/cluster.yaml").write_text(CLUSTER.replace("GPUS", "1"))
    monkeypatch.chdir(tmp_path / "room")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    imported = CompletedProcess([], 0, "2.21.0 0\n", "")
    monkeypatch.setattr(checks, "import_tensorflow", lambda _: imported)
    monkeypatch.setattr("lab.backends.local.isolation.unavailable_reason", lambda: None)
    monkeypatch.setattr("lab.cluster.gpu.read_host", lambda: NO_BOX)
    monkeypatch.setattr(gpus, "pci_gpus", lambda: 0)
    return tmp_path


@pytest.mark.parametrize(
    ("inventory", "local", "error"),
    [
        (NO_BOX, None, ""),
        (NO_BOX, "TensorFlow is missing; get it", "error: no backend can be used on this host; "),
        (
            replace(NO_BOX, faults=(fault(Condition.MISMATCH),)),
            None,
            "error: required checks fail: driver; fix ",
        ),
    ],
)
def test_the_command(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
    inventory: Inventory,
    local: str | None,
    error: str,
) -> None:
    monkeypatch.setattr("lab.cluster.gpu.read_host", lambda: inventory)
    monkeypatch.setattr("lab.backends.slurm.backend.shutil.which", lambda name: None)
    monkeypatch.setattr("lab.backends.local.backend.missing_runtimes", lambda: local)
    code = int(bool(error))
    shown = cli("doctor", code=code)
    assert (shown.err.startswith(error), bool(shown.err)) == (True, bool(error))
    assert "\x1b" not in shown.out
    report = json.loads(cli("doctor", "--json", code=code).out)
    assert report["ok"] is not bool(error)
    assert report["usable"] == {"compose": False, "local": local is None, "gpus": False}
    names = [(each["area"], each["where"]) for each in report["findings"]]
    assert len(set(names)) == len(names)
    for each in report["findings"]:
        assert {"area", "where", "status", "what", "fix"} <= set(each)
        assert each["status"] != "failed" or each["fix"]
    assert [each.name for each in Path().iterdir()] == ["cluster.yaml"]  # it changes nothing


def test_a_docker_without_compose_is_named_and_docker_is_not_quoted(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Engine, "version", lambda self: "28.0.0")
    main(["doctor"])
    shown = capsys.readouterr().out
    assert "failed  available          docker has no compose plugin\n" in shown
    assert "docker --help" not in shown


def test_a_host_with_a_gpu_and_an_engine(
    project: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setattr("lab.cluster.gpu.read_host", lambda: BOX)
    monkeypatch.setattr(gpus, "checks", lambda _: [a_check(OK)])
    for name, value in (
        ("unavailable_reason", None),
        ("missing_image", None),
        ("must_build", True),
    ):
        monkeypatch.setattr(compose.ComposeBackend, name, lambda *_, value=value, **__: value)
    monkeypatch.setattr(info, "read_engine", lambda: told(Runtimes={"nvidia": {}}))
    report = json.loads(cli("doctor", "--json").out)
    found = {f"{each['area']}: {each['where']}": each for each in report["findings"]}
    assert found["compose: image"]["what"] == "built by the next run"
    assert found["compose: engine"]["what"] == "28.2.2"
    assert found["GPUs by compose: container toolkit"]["status"] == "ok"
    assert found["GPUs by local: TensorFlow"]["status"] == "failed"
    assert report["usable"]["gpus"]
    # Neither backend gives GPUs to tasks.
    monkeypatch.setattr(info, "read_engine", lambda: ENGINE)
    assert cli("doctor", code=1).err.startswith("error: required checks fail: container toolkit, ")
    no_image = "there is no image x; build it"
    monkeypatch.setattr(compose.ComposeBackend, "missing_image", lambda *_, **__: no_image)
    assert "failed  image              there is no image x\n" in cli("doctor", code=1).out


def test_missing_packages_are_reported_without_any_package(tmp_path: Path) -> None:
    """The doctor itself must start with the standard library alone."""
    script = """if True:
        import sys
        third = ("docker", "jinja2", "msgspec", "numpy", "packaging", "pandas", "psutil")
        sys.modules.update(dict.fromkeys((*third, "pydantic", "pynvml", "rich", "yaml")))
        from lab.cli import main
        sys.exit(main(["doctor", "--json"]))
    """
    environ = {**os.environ, "PYTHONPATH": str(Path(host.__file__).parents[2])}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=False)
    assert done.returncode == 1, done.stderr
    (found,) = json.loads(done.stdout)["findings"]
    assert (found["where"], found["what"]) == ("packages", "packaging is missing")
