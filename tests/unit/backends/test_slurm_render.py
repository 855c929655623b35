"""`lab render --target slurm`: the script, its check, and what a Slurm job cannot have."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from lab.backends.rendered_file import RenderOptions
from lab.backends.slurm import NAME as SLURM
from lab.backends.slurm import _time_limit as time_limit
from lab.backends.slurm.render import components_of, slurm_time
from lab.base.errors import ConfigError
from lab.cli import main
from lab.cluster.config import load_cluster, parse_cluster
from lab.runner.planning import make_plan
from lab.verbs.render import recorded
from tests.golden.cases import accepted, rendered_files
from tests.support.cli import Cli
from tests.support.engine import ROOT
from tests.support.rendering import render_file
from tests.support.shown import assert_shows

CLUSTER = """\
version: 1
name: x
nodes:
  tf1: {cpus: 1.5, memory: 1GiB}
  tf2: {cpus: 3, gpus: 2}
  tf3: {cpus: 3, gpus: 2}
  idle: {gpus: 8}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2, tf3, tf3], gpus: 1}}
run: {experiment: async, flags: {epochs: 5}}
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_shows_what_slurm_cannot_do(project: Path, cli: Cli) -> None:
    (project / "cluster.yaml").write_bytes((ROOT / "cluster.yaml").read_bytes())
    assert_shows("docs/how-to/slurm.md", "$ lab render", cli("render", "--target", "slurm").err)


def script_of(gpus: str = "auto", **own: str | float) -> str:
    return render_file(Path("cluster.yaml"), RenderOptions(gpus, own=own), target=SLURM)


@pytest.mark.parametrize("source", accepted(SLURM), ids=lambda path: path.stem)
def test_bash_accepts_the_scripts(source: Path) -> None:
    for text in rendered_files(source, SLURM).values():
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_nodes_of_the_same_size_are_one_component() -> None:
    plan = make_plan(parse_cluster(CLUSTER.encode(), "x.yaml"), "auto", backend=SLURM).plan
    assert [each.options() for each in components_of(plan)] == [
        "--nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=2 --mem=1024M",
        "--nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=3 --gpus-per-node=1",
        "--nodes=1 --ntasks=2 --ntasks-per-node=2 --cpus-per-task=2 --gpus-per-node=2",
    ]


def test_without_gpus_pins_and_shares_do_not_matter(project: Path) -> None:
    text = CLUSTER.replace("tf2: {cpus: 3, gpus: 2}", "tf2: {cpus: 3, gpus: [3]}")
    (project / "cluster.yaml").write_text(text.replace("gpus: 1}", "share: true}"))
    assert "gpus-per-node" not in script_of(gpus="none")


def test_what_a_job_cannot_have_is_named_with_its_place(project: Path) -> None:
    (project / "cluster.yaml").write_text(
        CLUSTER.replace("gpus: 1}", "gpus: 1, gpu_memory_fraction: 0.5}")
        + "links: {tf1: {delay: 5ms}}\n"
        + "faults: [kill worker-1 after 5s, 'cut:5s worker-1 after 9 steps']\n"
    )
    path = Path("cluster.yaml")
    with pytest.raises(ConfigError) as error:
        make_plan(load_cluster(path), "auto", backend=SLURM, file=path)
    assert error.value.problems == [
        "cluster.yaml:8:85: jobs.worker.gpu_memory_fraction: a Slurm job gets whole GPUs; leave"
        " it out",
        "cluster.yaml:10:14: links.tf1: a Slurm job cannot change the network; leave it out",
        "cluster.yaml:11:34: faults[1]: a Slurm job cannot change the network; leave out this"
        " fault",
    ]


def test_the_config_of_this_project_is_a_job(tmp_path: Path, cli: Cli) -> None:
    script = tmp_path / "cluster.sbatch"
    command = ["render", str(ROOT / "cluster.yaml"), "--target=slurm", f"--output={script}"]
    assert cli(*command).err.splitlines()[:-1] == [
        "nodes.tf1.gpus: Slurm selects the GPUs; the list counts as 2 GPUs"
    ]
    assert "--nodes=3 --ntasks=3 --ntasks-per-node=1" in script.read_text()
    assert "the list counts" not in cli(*command, "--check").err
    assert "the list counts" in cli(*command[:-1], "--output=-").err


def test_the_script_is_written_and_checked_with_its_own_options(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["render", "--target", "slurm"]
    flags = ["-o", "time=90m"]
    assert main([*command, *flags, "--run", "sync", "--", "--epochs=2"]) == 0
    assert "submit it in the project's directory with `sbatch cluster.sbatch`" in (
        capsys.readouterr().err
    )
    script = project / "cluster.sbatch"
    own = {"time": 5400.0}
    assert recorded(script, SLURM) == RenderOptions("auto", "tensorflow", "sync --epochs=2", own)
    assert "export LAB_RUN='sync --epochs=2'\n" in script.read_text()
    assert main([*command, "--check"]) == 0
    assert main([*command, "--check", "-o", "time=2h"]) == 1
    script.write_text(script.read_text().replace("--nodes=1", "--nodes=4"))
    capsys.readouterr()
    assert main([*command, "--check"]) == 1
    printed = capsys.readouterr()
    assert "-#SBATCH --nodes=4" in printed.out
    again = printed.err.partition("write it again with `")[2].partition("`")[0]
    assert main(shlex.split(again)[1:]) == 0
    assert main([*command, "--check"]) == 0
    script.write_text("another file")
    assert main(command) == 2
    assert "lab did not write it" in capsys.readouterr().err


def test_the_python_is_that_of_the_runs_tensorflow(cli: Cli) -> None:
    config = str(ROOT / "clusters/workers.yaml")
    for run, environment in (("multiworker", ".venv"), ("horovod", ".venv-heritage")):
        command = ["render", config, "--target", "slurm", "--output", "-", "--run", run]
        assert f"$PWD/{environment}/bin/python" in cli(*command).out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--target slurm --explain", "--target slurm has no --explain; leave out --explain"),
        ("--target slurm --gpus uuid", "--gpus uuid: Slurm selects the GPUs; leave it out"),
        (
            "--target slurm -o network=isolated",
            "-o network: backend slurm has no such option; its options: -o time=TIME",
        ),
        (
            "-o time=2h",
            "-o time: backend compose has no such option; its options: -o gpus-by=nvidia|",
        ),
        ("--target slurm -o het=no", "-o het: backend slurm has no such option; its options"),
        ("--target slurm -o time", "-o time: the option 'time' of backend slurm takes TIME; write"),
        (
            "--target slurm -o time=59s",
            "-o time=59s: the option 'time' of backend slurm takes a duration from one minute to"
            " 365 days; write -o time=TIME",
        ),
        ("--target local", "--target: 'local' is not compose, slurm or kubernetes"),
    ],
)
def test_what_a_target_cannot_have_is_refused(flags: str, message: str, cli: Cli) -> None:
    assert message in cli("render", *flags.split(), code=2).err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(60, "0-00:01:00"), (61, "0-00:02:00"), (5400, "0-01:30:00"), (129_600, "1-12:00:00")],
)
def test_time_limits_are_in_slurms_form(seconds: float, text: str) -> None:
    assert slurm_time(time_limit(str(seconds))) == text


@pytest.mark.parametrize(("limit_s", "warning_s"), [(60.0, 30), (3600.0, 60)])
def test_slurm_warns_at_most_a_minute_before_the_time_limit(limit_s: float, warning_s: int) -> None:
    text = script_of(time=limit_s)
    assert f" --signal=B:USR1@{warning_s}\n" in text


@pytest.mark.parametrize("seconds", [0, 59.9, 400 * 86_400])
def test_a_time_limit_must_be_possible(seconds: float) -> None:
    with pytest.raises(ValueError, match="from one minute to 365 days"):
        time_limit(str(seconds))


def head() -> subprocess.CompletedProcess[str]:
    """Run a script up to its Python; Slurm's part is left out."""
    text = script_of().partition("\n# The nodes of each component")[0]
    environ = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    command = ["bash", "-c", text]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_a_node_that_does_not_see_the_project_or_its_python_ends_the_job(project: Path) -> None:
    (project / "scripts").rmdir()
    done = head()
    expected = f"error: there is no {project}/scripts on {os.uname().nodename}; all nodes must see"
    assert (done.returncode, done.stderr) == (2, f"{expected} the project\n")
    assert not (project / "slurm-7").exists()
    (project / "scripts").mkdir()
    done = head()
    assert done.returncode == 2
    assert f"error: there is no {project}/.venv/bin/python on " in done.stderr


def test_no_text_of_the_user_becomes_a_line_of_the_script(project: Path) -> None:
    name = "a\n#SBATCH --nodes=9\necho $(id) `id`.yaml"
    (project / name).write_text(CLUSTER)
    run = "async '--data_dir=it'\"'\"'s; `id` here'"
    text = render_file(Path(name), RenderOptions(run=run), target=SLURM)
    assert [line for line in text.splitlines() if "--nodes=9" in line] == [
        line for line in text.splitlines() if line.startswith(("# Rendered", "# Change"))
    ]
    line = next(line for line in text.splitlines() if line.startswith("export LAB_RUN="))
    command = f'{line}; printf %s "$LAB_RUN"'
    assert subprocess.check_output(["bash", "-c", command], text=True) == run
