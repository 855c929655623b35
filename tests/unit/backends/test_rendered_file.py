"""Where `lab render` writes, the paths in its files, and `--run`."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.backends.names import known
from lab.backends.rendered_file import RenderOptions, planned_run, run_override, runtime_of
from lab.base.errors import InputError
from lab.base.image_digest import digest
from lab.cluster.config import Cluster, parse_cluster
from tests.support.cli import CLUSTER, lab, refused
from tests.support.composing import ROOT, config
from tests.support.rendering import read_header, render_file


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a second config; compose could take its name for a URL or a variable."""
    folder = tmp_path / "github.com" / "a $HOME"
    for each in ("scripts", "data", "clusters", "elsewhere"):
        (folder / each).mkdir(parents=True)
    for name in ("cluster.yaml", "clusters/laptop.yaml"):
        (folder / name).write_text(CLUSTER)
    return folder


@pytest.mark.parametrize(
    ("cwd", "arguments", "written"),
    [
        (".", "", "compose.yaml"),
        ("clusters", "laptop.yaml", "clusters/compose.yaml"),
        (".", "--output elsewhere/x.yml", "elsewhere/x.yml"),
        ("..", "{}/cluster.yaml", "../compose.yaml"),
        ("../..", "github.com/{}/cluster.yaml", "../../compose.yaml"),
    ],
)
def test_a_file_anywhere_names_the_directories_of_the_project(
    project: Path, cwd: str, arguments: str, written: str
) -> None:
    words = [each.replace("{}", project.name) for each in arguments.split()]
    done = lab(project / cwd, "render", "--gpus", "none", *words)
    assert done.returncode == 0, done.stderr
    file = project / written
    services = config(file, folder=file.parent)["services"]
    shown = str(project).replace("$", "$$")  # as `docker compose config` prints it
    assert services["tf1"]["build"]["context"] == f"{shown}/.lab/image"
    assert services["tf1"]["build"]["dockerfile"] == "Dockerfile.gpu"
    assert digest(project / ".lab/image/lab") == digest()
    mounts = {each["target"]: each["source"] for each in services["ps-0"]["volumes"]}
    assert mounts["/lab/scripts"] == f"{shown}/scripts"
    assert mounts["/lab/data"] == f"{shown}/data"
    check = ["render", "--check", *words]
    assert lab(project / cwd, *check).returncode == 0


def test_a_config_outside_of_a_project_is_not_rendered(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    for flags in ([], ["--check", "--output", "cluster.yaml"], ["--output", "-"]):
        done = lab(tmp_path, "render", "--gpus", "none", *flags)
        assert "no scripts/ in the directory of cluster.yaml or above it" in refused(done)
    assert [each.name for each in tmp_path.iterdir()] == ["cluster.yaml"]


def test_the_image_of_a_project_is_built_with_the_projects_dockerfile(project: Path) -> None:
    (project / "Dockerfile.gpu").write_text("FROM mine\n")
    stale = project / ".lab/image/lab/task/removed.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    assert lab(project, "render", "--gpus", "none").returncode == 0
    build = config(project / "compose.yaml", folder=project)["services"]["tf1"]["build"]
    context = Path(build["context"].replace("$$", "$"))
    assert (context / build["dockerfile"]).resolve() == project / "Dockerfile.gpu"
    assert not stale.exists()
    for name in ("lab/base/image_digest.py", "lab/__init__.py"):  # now it is a clone
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("")
    done = lab(project, "render", "--gpus", "none", "--output", "-")
    assert "context: .\n" in done.stdout
    assert "dockerfile: Dockerfile.gpu\n" in done.stdout


def test_check_compares_the_file_that_docker_compose_uses(project: Path) -> None:
    render = ("render", "--gpus", "index")
    assert lab(project, *render, "--output", "docker-compose.yml").returncode == 0
    assert "docker-compose.yml is up to date" in lab(project, "render", "--check").stderr
    (project / "cluster.yaml").write_text(CLUSTER.replace("tf2", "tf9"))
    fix = "`lab render cluster.yaml --gpus=index --output=docker-compose.yml`"
    assert fix in lab(project, "render", "--check").stderr
    assert lab(project, *render).returncode == 0
    assert "\ncompose.yaml is up to date" in "\n" + lab(project, "render", "--check").stderr


@pytest.mark.parametrize(
    "more",
    [
        ["--run", "sync", "--", "--epochs=2"],
        ["--framework", "tensorflow-2.15"],
        ["-o", "gpus-by=cdi", "-o", "network=isolated"],
    ],
)
def test_the_fix_of_a_check_writes_the_same_file_again(project: Path, more: list[str]) -> None:
    flags = ("--gpus", "none", "--output", "my file.yml")
    assert lab(project, "render", *flags, *more).returncode == 0
    written = (project / "my file.yml").read_text()
    (project / "my file.yml").write_text(written.replace("init: true", "init: false"))
    stale = lab(project, "render", "--check", "--output", "my file.yml")
    again = stale.stderr.partition("write it again with `")[2].partition("`")[0]
    assert lab(project, *shlex.split(again)[1:]).returncode == 0
    assert (project / "my file.yml").read_text() == written


def test_git_ignores_what_belongs_to_a_host_or_a_class(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    shutil.copy(ROOT / ".gitignore", tmp_path)
    private = [
        *(each.renders[0] for each in known().values() if each.renders),
        "clusters/compose.yaml",
        *("key.pem", "cert.pem", "tf-workshop-handouts.html"),
        *("tf-workshop-20261126-101500.zip", "20261126-0230-async-9316.lab.tar.gz"),
        *("work/gradebook.csv", "runs/last/run.json"),
    ]
    command = ["git", "check-ignore", *private, "cluster.yaml", "docker-compose.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == private


TEXT = """version: 1
name: x
nodes: {a: {}, NODE: {}}
jobs: {ps: {on: [a]}, worker: {on: [a]}}
run: {experiment: async, flags: {epochs: 5}}
start: {ps-0: 1s}
"""


def cluster(node: str = "b", text: str = TEXT) -> Cluster:
    return parse_cluster(text.replace("NODE", node).encode(), "x.yaml")


def test_the_configs_run_another_one_and_none() -> None:
    own = planned_run(cluster())
    assert (own.arguments, dict(own.start)) == (("async", "--epochs=5"), {"ps-0": "1s"})
    other = planned_run(cluster(), run_override("sync", ["--epochs", "2"]))
    assert other.arguments == ("sync", "--epochs", "2")
    assert planned_run(cluster(), "none") is None
    assert planned_run(cluster(text=TEXT.replace("run:", "#"))) is None


@pytest.mark.parametrize("override", ["none", "sync --epochs 2", "'it''s'"])
def test_the_header_records_another_run(tmp_path: Path, override: str) -> None:
    (tmp_path / "x.yaml").write_text(TEXT.replace("NODE", "b"))
    if override.startswith("'"):
        override = run_override("sync", ["--checkpoint_dir=it's here"])
    recorded = read_header(render_file(tmp_path / "x.yaml", RenderOptions("none", None, override)))
    assert recorded.run == override
    assert read_header(render_file(tmp_path / "x.yaml", RenderOptions("none"))).run == ""


@pytest.mark.parametrize(
    ("node", "override", "message"),
    [
        ("b", "asink", "--run: lab has no experiment 'asink'; see `lab experiments`"),
        ("b", "hello", "--run: hello needs the job 'local'; choose another"),
        (
            "b",
            "sync '--checkpoint_dir=${HOME}'",
            "cannot be written to a compose file; write at most",
        ),
        ("b", "sync '--checkpoint_dir=a\nb'", "cannot be written to a compose file"),
        ("b", f"sync {'x' * 1000}", "cannot be written to a compose file"),
    ],
)
def test_a_run_that_cannot_be_rendered(node: str, override: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        planned_run(cluster(node), override)
    assert message in str(error.value)


def test_a_node_cannot_have_the_name_of_the_service() -> None:
    described = cluster("run", TEXT.replace("run: {", "#"))
    assert planned_run(described) is None
    with pytest.raises(InputError, match="the config has a node 'run'; both become services"):
        planned_run(described, "async")


def test_flags_need_an_experiment() -> None:
    for experiment in (None, "none"):
        with pytest.raises(InputError, match="flags after `--` need an experiment"):
            run_override(experiment, ["--epochs=2"])


def test_the_run_determines_the_runtime_of_the_tasks() -> None:
    run = planned_run(cluster())
    assert runtime_of(run, None, "tensorflow-2.15") == "tensorflow"
    assert runtime_of(None, "tensorflow-2.15", "tensorflow") == "tensorflow-2.15"
    assert runtime_of(None, None, "tensorflow") == "tensorflow"
    with pytest.raises(InputError, match="the config's run, 'async', needs tensorflow"):
        runtime_of(run, "tensorflow-2.15", "tensorflow")
