"""Error messages about a project's directory, its config, and its programs."""

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
from tests.support.cli import CLUSTER
from tests.support.commands import ROOT

ASYNC = EXPERIMENTS["async"]


def fault(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_cluster(text.encode(), "cluster.yaml")
    return str(caught.value)


def a_cluster(*tasks: int) -> str:
    """A config with jobs of these numbers of tasks."""
    jobs = [f"  {'ab'[i]}: {{on: [{', '.join(['tf1'] * many)}]}}" for i, many in enumerate(tasks)]
    return "\n".join(["version: 1", "name: x", "nodes: {tf1: {}}", "jobs:", *jobs])


def test_too_large_configs() -> None:
    assert "12000 tasks; the limit is 10000" in fault(a_cluster(6000, 6000))
    assert "has more than 10000 entries" in fault(a_cluster(10_001))
    assert "more than 100,000 values; no config" in fault("[" + "1," * 100_001 + "]")


def test_an_invalid_yaml_character() -> None:
    # Decodable text is checked before; this is the parser's own message, if it refuses more.
    with pytest.raises(_UnreadableError) as caught:
        _Reader(ParsedFile()).read("name: \x07")
    (problem,) = caught.value.problems
    assert problem.message.startswith("not YAML: unacceptable character #x0007")


def test_a_config_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)

    def refused(self: Path, *args: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))  # root may read everything

    with pytest.raises(InputError, match=r"cannot be read \(Not a directory\); name a config"):
        load_cluster(path / "x")
    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(InputError, match=r"cannot be read \(no permission\); allow your user"):
        load_cluster(path)


def test_a_config_outside_of_a_project(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no scripts/ in the directory of .* or above it; move the"
    ):
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


def test_unused_jobs_of_an_experiment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    text = CLUSTER.replace("ps: {on: [tf1]}", "ps: {on: [tf1]}, chief: {on: [tf1]}")
    cluster = parse_cluster(text.encode(), "cluster.yaml")
    message = r"cannot use the job 'chief' of cluster.yaml; remove it"
    with pytest.raises(InputError, match=message):
        project.check_jobs(ASYNC, cluster, Path("cluster.yaml"), root)


def test_data_for_an_experiment_that_reads_none(root: Path) -> None:
    with pytest.raises(InputError, match=r"'hello' reads no data; leave out --data_dir"):
        project.check_data_dir(str(root), EXPERIMENTS["hello"])


def test_programs_of_experiments(root: Path) -> None:
    path = root / "scripts" / ASYNC.program
    with pytest.raises(InputError, match=r"is missing; restore the file"):
        project.check_program(ASYNC, root)
    path.write_text("a = (\n")
    with pytest.raises(InputError, match=r"mnist_async.py:1:5: .* never closed; fix the"):
        project.check_program(ASYNC, root)
    path.write_bytes(b"a = 1\0\n")
    with pytest.raises(InputError, match=r"null bytes; fix the program"):
        project.check_program(ASYNC, root)
    path.write_text("-" * 100_000 + "1")
    with pytest.raises(InputError, match=r"(nested|recursion).*; fix the program"):
        project.check_program(ASYNC, root)


def test_modules_that_the_program_of_an_experiment_imports(root: Path) -> None:
    program = root / "scripts" / ASYNC.program
    program.write_text("from mnist_model import MODELS\nfrom lab.task.sdk.data import load_mnist\n")
    (root / "scripts/mnist_sync.py").write_text("def (")
    project.check_program(ASYNC, root)
    (root / "scripts/mnist_model.py").write_text("import session\n")
    (root / "scripts/session.py").write_text("x =\n")
    with pytest.raises(InputError, match=r"scripts/session.py:1:4: invalid syntax; fix the"):
        project.check_program(ASYNC, root)


def test_own_program_with_null_bytes(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(b"a = 1\0\n")
    with pytest.raises(InputError, match=r"null bytes"):
        read_program(str(path))
    path.write_text("-" * 100_000 + "1")
    with pytest.raises(InputError, match=r"(nested|recursion).*; fix the program"):
        read_program(str(path))


def test_data_of_a_user(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"and containers see no other directory; move it there"):
        project.data_dir_inside(root, "compose", root)
    assert project.data_dir_inside(root / "data", "compose", root) == "/lab/data"
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    with pytest.raises(InputError, match=r"cannot be read; change its permissions"):
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
def test_options_of_own_programs_only(cluster: str, services: tuple[str, ...]) -> None:
    program = OwnProgram(Path(), "own.py", "own", (Path("own.py"),), ())
    made = project.experiment_of(program, load_cluster(ROOT / f"{cluster}.yaml"), "2.15")
    assert (made.services, made.tensorflow) == (services, "2.15")
