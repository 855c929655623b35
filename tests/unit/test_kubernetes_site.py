"""Parts of the private Kubernetes that need none: its names, its programs, its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes import builds, page
from tests.kubernetes.names import hosts
from tests.support.engine import ROOT, NoEngine

ENDPOINTS: dict[str, Any] = {
    "metadata": {"name": "mnist", "namespace": "lab"},
    "subsets": [
        {
            "addresses": [{"ip": "172.17.0.2", "hostname": "tf1"}, {"ip": "172.17.0.3"}],
            "notReadyAddresses": [{"ip": "172.17.0.4", "hostname": "tf3"}],
        }
    ],
}


def test_a_service_and_its_pods_have_names_while_it_has_their_addresses() -> None:
    assert [*hosts(ENDPOINTS)] == [
        "172.17.0.2 mnist.lab.svc.cluster.local",
        "172.17.0.2 tf1.mnist.lab.svc.cluster.local",
        "172.17.0.3 mnist.lab.svc.cluster.local",
    ]
    assert [*hosts({**ENDPOINTS, "subsets": None})] == []


def test_programs_are_compiled_again_only_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[Path] = []

    def build(_: builds.Build, folder: Path) -> None:
        made.append(folder)
        folder.mkdir()

    monkeypatch.setattr(builds, "_build", build)
    first = builds.built(builds.CONTROL_PLANE)
    assert builds.built(builds.CONTROL_PLANE) == first
    assert made == [first]
    newer = builds.built(replace(builds.CONTROL_PLANE, packages=("golang-go",)))
    assert made == [first, newer]
    assert newer != first


def test_the_error_of_a_build_has_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails:
        stdout = iter(["compiling kubelet\n"])

        def wait(self) -> int:
            return 1

    def start(*_: object, stderr: Any, **__: object) -> Fails:
        stderr.write("kubelet.go:1: no such package\n")
        return Fails()

    monkeypatch.setattr("subprocess.Popen", start)
    with pytest.raises(NoEngine, match=r"(?s)build.log ends:\nkubelet.go:1: no such package"):
        builds._compile(builds.CONTROL_PLANE, tmp_path, tmp_path / "build.log")


def test_the_page_has_the_last_result_of_each_test(tmp_path: Path) -> None:
    first = {"date": "2026-11-27", "result": "passed", "seconds": 3}
    second = {**first, "result": "failed"}
    before = page.record({"Linux": "6.1"}, {"test_b": first, "test_a": first}, {})
    after = page.record({"Linux": "6.18"}, {"test_a": second}, before)
    page.write(tmp_path, after)
    assert page.read(tmp_path) == after
    lines = (tmp_path / "kubernetes.md").read_text().splitlines()
    assert "| Linux | 6.18 |" in lines
    assert lines[-2:] == [
        "| `test_a` | failed | 3 | 2026-11-27 |",
        "| `test_b` | passed | 3 | 2026-11-27 |",
    ]


def test_the_page_in_the_documents_is_of_its_file() -> None:
    folder = ROOT / "docs/evidence"
    assert (folder / "kubernetes.md").read_text() == page.page(page.read(folder))
