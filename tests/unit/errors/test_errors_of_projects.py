"""What is said of a project's directory, its description, and its programs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.config import load_cluster, parse_cluster
from lab.config.yaml_reader import ParsedFile, _Reader, _UnreadableError
from lab.errors import InputError
from lab.run import project
from lab.run.program import OwnProgram, read_program
from lab.task.protocol.experiments import EXPERIMENTS
from tests.commands import ROOT
from tests.unit.test_cli import CLUSTER

ASYNC = EXPERIMENTS["async"]


def fault(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_cluster(text.encode(), "cluster.yaml")
    return str(caught.value)


def a_cluster(*tasks: int) -> str:
    """A description with jobs of so many tasks."""
    jobs = [f"  {'ab'[i]}: {{on: [{', '.join(['tf1'] * many)}]}}" for i, many in enumerate(tasks)]
    return "\n".join(["version: 1", "name: x", "nodes: {tf1: {}}", "jobs:", *jobs])


def test_descriptions_beyond_all_measure() -> None:
    assert "12000 tasks; no more than 10000 are possible" in fault(a_cluster(6000, 6000))
    assert "has more than 10000 entries" in fault(a_cluster(10_001))
    assert "more than 100,000 values; no description" in fault("[" + "1," * 100_001 + "]")


def test_a_character_that_yaml_does_not_know() -> None:
    # What decodes is searched before; this is the parser's own message, if it refuses more.
    with pytest.raises(_UnreadableError) as caught:
        _Reader(ParsedFile()).read("name: \x07")
    (problem,) = caught.value.problems
    assert problem.message.startswith("not YAML: unacceptable character #x0007")


def test_a_description_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)

    def refused(self: Path, *args: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))  # root may read everything

    with pytest.raises(InputError, match=r"cannot be read \(Not a directory\); name a desc"):
        load_cluster(path / "x")
    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(InputError, match=r"may not be read; give yourself permission"):
        load_cluster(path)


def test_a_description_outside_of_a_project(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no scripts/ beside .* or above it; keep the"):
        project.find_root(tmp_path / "cluster.yaml")


def test_jobs_that_an_experiment_needs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    text = CLUSTER.replace("ps: {on: [tf1]}", "chief: {on: [tf1]}")
    cluster = parse_cluster(text.encode(), "cluster.yaml")
    for mend in ("add it under `jobs:`", "try --cluster clusters/fits.yaml"):
        with pytest.raises(InputError, match=rf"needs the job 'ps', which .* lacks; {mend}"):
            project.check_jobs(ASYNC, cluster, Path("cluster.yaml"), root)
        (root / "clusters").mkdir(exist_ok=True)
        (root / "clusters/fits.yaml").write_text(CLUSTER)


def test_jobs_that_an_experiment_has_no_use_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    text = CLUSTER.replace("ps: {on: [tf1]}", "ps: {on: [tf1]}, chief: {on: [tf1]}")
    cluster = parse_cluster(text.encode(), "cluster.yaml")
    words = r"has no use for the job 'chief' of cluster.yaml; take it out"
    with pytest.raises(InputError, match=words):
        project.check_jobs(ASYNC, cluster, Path("cluster.yaml"), root)


def test_data_for_an_experiment_that_reads_none(root: Path) -> None:
    with pytest.raises(InputError, match=r"'hello' reads no data; leave out --data_dir"):
        project.check_data_dir(str(root), EXPERIMENTS["hello"])


def test_programs_of_experiments(root: Path) -> None:
    path = root / "scripts" / ASYNC.program
    with pytest.raises(InputError, match=r"is missing; put it there"):
        project.check_program(ASYNC, root)
    path.write_text("a = (\n")
    with pytest.raises(InputError, match=r"mnist_async.py:1:5: .* never closed; mend the"):
        project.check_program(ASYNC, root)
    path.write_bytes(b"a = 1\0\n")
    with pytest.raises(InputError, match=r"null bytes; mend the program"):
        project.check_program(ASYNC, root)
    path.write_text("-" * 100_000 + "1")
    with pytest.raises(InputError, match=r"(nested|recursion).*; mend the program"):
        project.check_program(ASYNC, root)


def test_modules_that_the_program_of_an_experiment_imports(root: Path) -> None:
    program = root / "scripts" / ASYNC.program
    program.write_text("from mnist_model import MODELS\nfrom lab.task.sdk.data import load_mnist\n")
    (root / "scripts/mnist_sync.py").write_text("def (")
    project.check_program(ASYNC, root)
    (root / "scripts/mnist_model.py").write_text("import session\n")
    (root / "scripts/session.py").write_text("x =\n")
    with pytest.raises(InputError, match=r"scripts/session.py:1:4: invalid syntax; mend the"):
        project.check_program(ASYNC, root)


def test_a_program_of_ones_own_with_null_bytes(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(b"a = 1\0\n")
    with pytest.raises(InputError, match=r"null bytes"):
        read_program(str(path))
    path.write_text("-" * 100_000 + "1")
    with pytest.raises(InputError, match=r"(nested|recursion).*; mend the program"):
        read_program(str(path))


def test_data_of_ones_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"containers see only what lies in .*; move it there"):
        project.data_dir_inside(root, "compose", root)
    assert project.data_dir_inside(root / "data", "compose", root) == "/lab/data"
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    with pytest.raises(InputError, match=r"cannot be read; mend its permissions"):
        project.check_data_dir(str(root))


@pytest.mark.parametrize(
    ("cluster", "services"),
    [
        ("cluster", ("ps",)),
        ("clusters/workers", ()),
        ("clusters/client", ("worker",)),
        ("clusters/in-graph", ("ps", "worker")),
    ],
)
def test_what_only_serves_a_program_of_ones_own(cluster: str, services: tuple[str, ...]) -> None:
    program = OwnProgram(Path(), "own.py", "own", (Path("own.py"),), ())
    made = project.experiment_of(program, load_cluster(ROOT / f"{cluster}.yaml"), "2.15")
    assert (made.services, made.tensorflow) == (services, "2.15")
