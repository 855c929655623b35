"""Which checks the doctor runs, its report, and the command."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cli import main
from lab.doctor import Report, data, engine, examine, gpus, resources
from lab.doctor.checks import CHECKS
from lab.doctor.commands import CommandResult, run_command
from lab.doctor.host import Fact, Host
from lab.doctor.model import Finding, Need, Outcome, Status
from lab.doctor.runner import Check, run_checks
from lab.errors import LabError
from lab.gpu import Condition
from tests.support.doctor import (
    BOX,
    CLUSTER,
    ENGINE,
    IMAGE,
    NO_BOX,
    ROOTLESS,
    SEEN,
    UUID,
    Commands,
    fault,
    raising,
)

OK, WARNING, FAILED, SKIPPED = Status.OK, Status.WARNING, Status.FAILED, Status.SKIPPED

# ---- The table of checks, and its runner


def test_the_table_of_checks() -> None:
    """Judges get facts, checks need checks above them, and each has its purpose."""
    local = {
        *("TensorFlow", "local environments", "open files", "threads"),
        *("namespaces", "ports", "addresses"),
    }
    above: set[str] = set()
    for area, checks in CHECKS.items():
        for check in checks:
            for judge in filter(None, (check.judge, check.on_error)):
                for name in set(inspect.signature(judge).parameters) - {"error"}:
                    assert isinstance(vars(Host)[name], Fact), (check.name, name)
            assert above.issuperset(check.needs), check.name
            assert check.name not in above
            above.add(check.name)
            own = {"Docker": Need.COMPOSE, "GPUs": Need.GPUS}.get(area, Need.EVERYTHING)
            assert check.needed_for is (Need.LOCAL if check.name in local else own), check.name


def run(*checks: Check) -> list[tuple[str, str]]:
    table = {"area": checks}
    return [(each.name, each.outcome.what) for each in run_checks(table, lambda _: None)]


def test_checks_after_a_failed_requirement_are_skipped() -> None:
    good, bad = (lambda: Outcome(OK, "good")), (lambda: Outcome(FAILED, "bad", stops=True))
    second = Check("second", Need.LOCAL, good, ["first"])
    third = Check("third", Need.LOCAL, good, ["second"])
    other = Check("other", Need.LOCAL, good)
    first = Check("first", Need.LOCAL, good)
    assert [name for name, _ in run(first, second, third)] == ["first", "second", "third"]
    first = Check("first", Need.LOCAL, bad, without="nothing to check")
    shown = [("first", "bad"), ("further checks", "nothing to check"), ("other", "good")]
    assert run(first, second, third, other) == shown
    assert run(replace(first, without=""), second, third) == [("first", "bad")]
    assert run(replace(first, vital=True), other) == [("first", "bad")]


def test_a_fact_is_looked_up_once_and_its_failure_is_an_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = iter((1, 2))
    monkeypatch.setattr(resources, "cpu_count", lambda: next(looks))
    host = Host()
    assert [host.cpus, host.cpus, Host().cpus] == [1, 1, 2]

    def judge(cpus: int) -> Outcome:
        return Outcome(OK, str(cpus))

    check = Check("first", Need.LOCAL, judge)
    second = Check("second", Need.LOCAL, lambda: Outcome(OK, "good"), ["first"])
    monkeypatch.setattr(resources, "cpu_count", raising(LabError("odd", "fix it")))
    assert run(check, second) == [("first", "odd")]
    explained = replace(check, on_error=lambda error: Outcome(FAILED, f"because {error}"))
    assert run(explained, second) == [("first", "because odd; fix it")]


def on(facts: Mapping[str, object], check: str, passed: Sequence[str] = ("engine",)) -> Outcome:
    """Run a check on a host with these facts."""
    host = Host()
    host.passed.update(passed)
    for name, value in facts.items():
        host.found[Host.__dict__[name]] = found = Future()
        found.set_result(value)
    table = {each.name: each for checks in CHECKS.values() for each in checks}
    return table[check].run(host)


def test_a_rootless_engine_has_its_own_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {
        **{"toolkit": gpus.Toolkit(has_ctk=True), "uses_cdi": False, "requested_gpus": 1},
        **{"has_cudnn": False, "trial": gpus.Trial(UUID, None, CommandResult(None))},
    }
    own = on({**facts, "engine_info": ROOTLESS}, "container toolkit").fix
    for part in ("--config=$HOME/.config/docker/daemon.json", "no-cgroups", "cdi generate"):
        assert part in own
    by_root = on({**facts, "engine_info": ENGINE}, "container toolkit").fix
    assert "sudo systemctl restart docker" in by_root
    # If it does not answer, its address shows its kind.
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    monkeypatch.setattr(engine, "read_engine", raising(TimeoutError("late")))
    late = on({}, "engine", passed=())
    assert (late.status, late.stops, "docker -u" in late.fix) == (FAILED, True, False)
    for fix, is_own in ((own, True), (by_root, False), (late.fix, True)):
        assert ("systemctl --user restart docker" in fix) is is_own


# ---- The report


def finding(
    status: Status, need: Need = Need.EVERYTHING, blocks: str = "", fix: str = "fix it"
) -> Finding:
    return Finding("area", "name", need, Outcome(status, "what", fix, blocks))


@pytest.mark.parametrize(
    ("findings", "usable", "ok"),
    [
        ([finding(OK)], "yyy", True),
        # One backend is enough.
        ([finding(FAILED, Need.LOCAL, "x"), finding(WARNING, Need.GPUS, "y")], "nyn", True),
        ([finding(FAILED, Need.COMPOSE, "no engine")], "yny", True),
        ([finding(WARNING, Need.COMPOSE, "x"), finding(WARNING, Need.LOCAL, "y")], "nnn", False),
        # A broken driver where the config requests GPUs.
        ([finding(FAILED, Need.GPUS, "mismatch")], "yyn", False),
        ([finding(WARNING, Need.GPUS)], "yyy", True),
    ],
)
def test_overall_result(findings: list[Finding], usable: str, ok: bool) -> None:
    report = Report(findings)
    assert report.ok is ok
    needs = (Need.LOCAL, Need.COMPOSE, Need.GPUS)
    assert "".join("y" if report.usable(need) else "n" for need in needs) == usable
    assert report.as_json()["usable"] == {need.value: report.usable(need) for need in needs}


# ---- The command


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a config; no engine, no GPU, and a TensorFlow that is quick."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("GPUS", "1"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    monkeypatch.setattr(Host, "tensorflow", CommandResult(0, '["2.21.0", ""]'))
    monkeypatch.setattr(Host, "nvml", NO_BOX)
    monkeypatch.setattr(Host, "pci_gpus", 0)
    return tmp_path


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({}, ""),
        ({"tensorflow": None, "docker": None}, "error: no backend can be used on this host; fix "),
        (
            {"nvml": replace(NO_BOX, faults=(fault(Condition.MISMATCH),))},
            "error: required checks fail: driver; fix ",
        ),
    ],
)
def test_the_command(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    facts: Mapping[str, object],
    error: str,
) -> None:
    for name, value in facts.items():
        monkeypatch.setattr(Host, name, value)
    code = int(bool(error))
    assert main(["doctor"]) == code
    shown = capsys.readouterr()
    assert (shown.err.startswith(error), bool(shown.err), "\x1b" in shown.out) == (
        True, bool(error), False
    )  # fmt: skip
    assert main(["doctor", "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is not bool(error)
    if not error:
        assert report["usable"] == {"local": True, "compose": False, "gpus": False}
        assert re.search(r"\nlocal: yes; compose: no \(no .*; GPUs: no \(no GPU\)\n", shown.out)
    names = {(each["area"], each["name"]) for each in report["findings"]}
    assert len(names) == len(report["findings"])
    for each in report["findings"]:
        assert set(each) == {"area", "name", "verdict", "what", "mend", "needed_for", "blocks"}
        assert each["verdict"] in set(Status)
        assert each["verdict"] != "failed" or (each["mend"] and each["blocks"])
    assert [each.name for each in project.iterdir()] == ["cluster.yaml"]  # it changes nothing


@pytest.fixture
def box(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, an engine without a trace of the toolkit, and an image."""
    # The disk of the machine that runs the tests may be full.
    here = data.Directory(Path("here"), Path("/"), "", 10**11, "runs", "LAB_RUNS_DIR")
    facts: dict[str, object] = {
        **{"nvml": BOX, "docker": "/usr/bin/docker", "engine_info": ENGINE, "image": IMAGE},
        **{"compose_version": "2.40.3", "buildx_version": "0.29.1", "toolkit": gpus.Toolkit()},
        **{"cdi_specs": (), "routes": [], "engine_disk": (Path("/var/lib/docker"), 10**11)},
        **{"runs": here, "state": here},
    }
    for name, value in facts.items():
        monkeypatch.setattr(Host, name, value)


@pytest.mark.usefixtures("box")
@pytest.mark.parametrize(
    ("cudnn", "trial", "toolkit", "shown"),
    [
        # A trial counts more than the configuration that was not found.
        (False, CommandResult(0, SEEN), OK, "local: yes; compose: yes; GPUs: yes"),
        # Without containers, GPUs need cuDNN.
        (True, CommandResult(125, "", "could not"), WARNING, "local: yes; compose: yes; GPUs: yes"),
    ],
)
def test_a_host_with_a_gpu_and_an_engine(
    monkeypatch: pytest.MonkeyPatch,
    cudnn: bool,
    trial: CommandResult,
    toolkit: Status,
    shown: str,
) -> None:
    monkeypatch.setattr(Host, "tensorflow", CommandResult(0, '["2.21.0", "12.5.1"]'))
    monkeypatch.setattr(gpus, "find_cudnn", lambda: cudnn)
    monkeypatch.setattr(gpus, "run_command", Commands(trial))
    watched: list[str] = []
    findings = list(examine(watched.append))
    found = {each.name: each.outcome.status for each in findings}
    assert found["container toolkit"] is toolkit
    assert ("trial container" in found) is (toolkit is OK)
    assert found["local backend"] is (OK if cudnn else WARNING)
    assert "CUDA" in found
    assert "GPUs: container toolkit" in watched
    assert Report(findings).sentence().endswith(shown)
    assert Report(findings).ok is (toolkit is not FAILED)


def test_unexpected_errors_of_checks_are_findings(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = PermissionError(13, "Permission denied", "x")
    monkeypatch.setattr(data, "verify_dataset", raising(denied))
    monkeypatch.setattr(data, "local_environments", raising(LabError("odd", "fix it")))
    hangs = threading.Event()
    monkeypatch.setattr(Host, "runs", Fact(lambda _: hangs.wait(), 0.05))
    monkeypatch.setattr("lab.backends.local.isolation.unavailable_reason", raising(TimeoutError()))
    monkeypatch.setattr(Host, "docker", "/usr/bin/docker")
    found = {each.name: each.outcome for each in examine()}
    hangs.set()
    for name, what in (
        ("MNIST", "x: Permission denied"),
        ("local environments", "odd"),
        ("room for runs", "no answer within"),
        ("namespaces", "creating one took more than"),
    ):
        assert what in found[name].what
    engine_outcome = found["engine"]
    assert (engine_outcome.blocks, engine_outcome.stops) == ("no engine answers", True)


def test_missing_packages_are_reported_without_any_package(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor itself must start with the standard library alone."""
    script = """if True:
        import sys
        third = ("docker", "jinja2", "msgspec", "numpy", "packaging", "pandas", "psutil")
        sys.modules.update(dict.fromkeys((*third, "pydantic", "pynvml", "rich", "yaml")))
        from lab.doctor import examine
        print([(each.name, each.outcome.what) for each in examine()][-1])
    """
    environ = {**os.environ, "PYTHONPATH": str(Path(data.__file__).parents[2])}
    found = run_command([sys.executable, "-c", script], 60, environ)
    assert found.out == "('packages', 'packaging is missing')\n", found.err
    # Nothing else is checked then.
    monkeypatch.setattr(Host, "packages", (1, ["rich is missing"]))
    assert [each.name for each in examine()] == ["version", "packages"]
