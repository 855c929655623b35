"""The command line through a subprocess: every habit of Fire that was tamed, and the exit codes."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cli import arguments, main
from lab.cli.commands import run
from lab.cli.errors import exit_code_of
from lab.cli.help import command_help
from lab.cli.registry import COMMANDS, EVERYDAY, GROUPS, columns
from lab.task.protocol.experiments import EXPERIMENTS, Experiment
from lab.task.protocol.files import write_atomically
from tests.support.agents import PATIENCE_S
from tests.support.cli import CLUSTER, environ, lab, make_run, on_a_terminal, refused
from tests.support.shown import examples

ROOT = Path(__file__).parents[2]


def nothing_happened(project: Path) -> bool:
    return sorted(path.name for path in project.iterdir()) == ["cluster.yaml", "scripts"]


# ---- Fire's habits


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # A misspelt flag is found before the command runs.
        (["run", "async", "--epoch", "5"], "no option '--epoch' for `lab run`; did you mean '--ep"),
        (["run", "async", "--learning-rat=1"], "did you mean '--learning_rate'?"),
        (["run", "async", "--bakend", "local"], "did you mean '--backend'?"),
        (["render", "--chek"], "did you mean '--check'?"),
        (["down", "-z"], "no option '-z'"),
        (["validate", "--help=x"], "no option '--help'"),
        # An unexpected argument fills no parameter.
        (["run", "async", "5"], "unexpected argument '5' for `lab run`"),
        (["run", "async", "rest"], "argument 'rest' for `lab run`; did you mean '--resume'?"),
        (["ls", "jason"], "'jason' for `lab ls`; did you mean '--json'?"),
        (["validate", "cluster"], "there is no file cluster"),
        (["validate", "cluster.yaml", "x"], "unexpected argument 'x' for `lab validate`"),
        (["validate", "cluster.yaml", "--check"], "no option '--check' for `lab validate`"),
        (["render", "cluster"], "there is no file cluster"),
        (["validate", "scripts"], "scripts is a directory"),
        (["render", "scripts"], "scripts is a directory"),
        (["render", "cluster.yaml", "x"], "unexpected argument 'x' for `lab render`"),
        (["render", "cluster.yaml", "--json"], "no option '--json' for `lab render`"),
        (
            ["render", "cluster.yaml", "--cluster", "other.yaml"],
            "two configs are given: cluster.yaml and --cluster other.yaml; leave out one",
        ),
        (["validate", "cluster.yaml", "--cluster=scripts"], "two configs are given"),
        (["schema", "-"], "unexpected argument '-'"),
        (["runs", "show", "last"], "unexpected argument 'show'"),  # no chaining
        (["run"], "`lab run` needs EXPERIMENT"),
        (["shell"], "`lab shell` needs TASK"),
        # Flags want values, once.
        (["run", "async", "--epochs"], "--epochs needs a value"),
        (["run", "async", "--epochs", "--keep"], "--epochs needs a value"),
        (["run", "async", "--epochs=1", "--epochs=2"], "--epochs is given twice"),
        (["render", "--output="], "--output: '' is not a value"),
        (["up", "--backend", "docker"], "--backend: 'docker' is not auto, local"),
        (["up", "--gpus", "all"], "--gpus: 'all' is not auto, uuid, index or none"),
        (["logs", "--tail", "-5"], "--tail: '-5' is not a whole number"),
        (["logs", "--tail", "1e3"], "--tail: '1e3' is not a whole number"),
        (["ls", "--json=maybe"], "--json: 'maybe' is not true or false"),
        (["ls", "--no-json=true"], "--no-json takes no value"),
        (["render", "--no-output"], "no option '--no-output'"),
        # A program's flags are checked for the program that is meant.
        (["run", "async", "--epochs", "two"], "--epochs: 'two' is not a whole number from 1"),
        (["run", "async", "--epochs", "0"], "--epochs: '0' is not a whole number from 1"),
        (["run", "async", "--learning_rate=-1"], "--learning_rate: '-1' is not a positive number"),
        (["run", "async", "--model", "cnn"], "--model: 'cnn' is not one of softmax, mlp"),
        (["run", "async", "--log_device_placement=maybe"], "is neither true nor false"),
        (["run", "async", "--replicas_to_aggregate=2"], "'async' has no flag --replicas_to_"),
        (["run", "asink"], "no experiment 'asink'; did you mean 'async'?"),
        (["validate", "--", "x"], "`lab validate` starts no program"),
        # Commands.
        (["rum"], "no command 'rum'; did you mean 'run'?"),
        (["--verbose"], "no option '--verbose'"),
        (["__class__"], "no command '__class__'"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_and_nothing_runs(
    project: Path, words: list[str], expected: str
) -> None:
    assert expected in refused(lab(project, *words))
    assert nothing_happened(project)


def test_values_stay_text(project: Path) -> None:
    for name in ("1.10", "1e3", "None", "[1]", "true"):
        assert f"no run in {name}" in refused(lab(project, "show", "last", f"--runs-dir={name}"))


def test_switches(project: Path) -> None:
    assert json.loads(lab(project, "validate", "--json").stdout)["valid"]
    assert json.loads(lab(project, "validate", "--json=true").stdout)["valid"]
    for no in ("--json=false", "--no-json", "--json=0"):
        assert lab(project, "validate", no).stdout == ""
    # A switch does not take the next argument.
    assert "no run 'x'" not in lab(project, "show", "--json", "x").stderr
    assert refused(lab(project, "show", "--json", "x")).startswith("error: no run in runs")


@pytest.mark.parametrize("words", [["--runs-dir", "r"], ["--runs_dir", "r"], ["--runs-dir=r"]])
def test_flag_spellings(project: Path, words: list[str]) -> None:
    assert "no run in r" in lab(project, "runs", *words).stderr


def test_a_command_prints_its_result_once(project: Path) -> None:
    done = lab(project, "schema")
    assert done.returncode == 0
    assert done.stderr == ""
    assert json.loads(done.stdout)["type"] == "object"


# ---- Help


def test_lab_alone_shows_the_commands_that_matter(project: Path) -> None:
    done = lab(project)
    assert done.returncode == 0
    shown = re.findall(r"^  (\w+) ", done.stdout, re.MULTILINE)
    assert shown == list(GROUPS[EVERYDAY])


def test_help_lists_the_everyday_commands_first_and_each_command_once(project: Path) -> None:
    assert next(iter(GROUPS)) == EVERYDAY
    assert len(GROUPS[EVERYDAY]) == 6
    assert len(COMMANDS) == sum(map(len, GROUPS.values()))
    shown = re.findall(r"^  ([a-z]+)  ", lab(project, "--help").stdout, re.MULTILINE)
    assert shown == list(COMMANDS)


def test_help_wraps_at_words_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("one", "words " * 20), ("longer", "")]
    assert len(columns(rows)) == 2
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    first, *more, last = columns(rows)
    assert first.startswith("  one      words")
    assert more
    assert max(map(len, [first, *more])) <= 60
    assert {line[:11] for line in more} == {" " * 11}
    assert " ".join(" ".join([first, *more]).split()) == "one " + " ".join(["words"] * 20)
    assert last == "  longer"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_wraps_at_words_on_a_terminal(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"lab.cli.commands.{name}")
    wide = command_help(name, module)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    text, _, _ = command_help(name, module).partition("examples:\n")
    assert max(map(len, text.splitlines())) <= 80
    assert text.split() == wide.partition("examples:\n")[0].split()


def test_help_shows_every_command_and_two_examples_of_each(project: Path) -> None:
    everything = lab(project, "--help")
    assert everything.returncode == 0
    for name, summary in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", everything.stdout, re.MULTILINE)
        done = lab(project, name, "--help")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"usage: lab {name}" in done.stdout
        assert "None" not in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 120, name
        assert len(examples(name)) >= 2
        _, shown = done.stdout.split("\nexamples:\n")
        assert re.findall(r"^  (lab .*)", shown, re.MULTILINE) == examples(name)
        assert shown.count("\n  # ") + shown.startswith("  # ") == len(examples(name))
    assert nothing_happened(project)


def test_examples_fit_the_commands() -> None:
    """The parser accepts the arguments of every example; nothing is called."""
    for name in COMMANDS:
        function = importlib.import_module(f"lab.cli.commands.{name}").command
        for line in examples(name):
            words = shlex.split(line.partition(" >")[0])
            assert words[:2] == ["lab", name]
            arguments.check(name, function, words[2:])


# These commands need TensorFlow, an environment or an engine, or go on until Ctrl-C; that their
# examples work is shown in tests/e2e, and in test_tensorboard.py. Every other command's examples
# are run here, so that none can rot.
NEEDS_MORE = {"run", "sweep", "reproduce", "attach", "cancel", "fault", "predict", "collect"} | {
    "tensorboard", "up", "down", "ps", "logs", "shell", "build", "doctor", "class",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - NEEDS_MORE))
def test_examples_work(tmp_path: Path, name: str) -> None:
    """Each example, typed unchanged, in a shell and in a fresh copy of the project."""
    for part in ("cluster.yaml", "clusters", "lab/config/cluster.schema.json"):
        source, target = ROOT / part, tmp_path / part
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
    (tmp_path / "scripts").mkdir()
    if name == "init":
        (tmp_path / "cluster.yaml").unlink()
    make_run(tmp_path, "20260101-0000-async-aaaa")
    if name == "compare":
        make_run(tmp_path, "20260102-0000-async-bbbb")
    if name == "import":
        lab(tmp_path, "export", "20260101")
        shutil.rmtree(tmp_path / "runs")
    for folder in (".local/share/bash-completion/completions", ".config/fish/completions"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/lab").write_text(f'#!/bin/sh\nexec {sys.executable} -m lab "$@"\n')
    (tmp_path / "bin/lab").chmod(0o755)
    for line in examples(name):
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=environ(
                tmp_path, HOME=str(tmp_path), PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}"
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout or done.stderr or ">" in line


def test_version(project: Path) -> None:
    assert re.fullmatch(r"lab \d+\.\d+\.\d+\n", lab(project, "--version").stdout)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_the_help_of_an_experiment_has_only_its_own_flags(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", experiment.name, "--help"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"lab run {experiment.name}: {experiment.summary}\n")
    listed = re.findall(r"^  --([a-z_]+)", told, re.MULTILINE)
    assert listed == list(experiment.flags)
    assert (f"flags of {experiment.name}:" in told) == bool(experiment.flags)
    assert "`lab run --help` lists the flags of every run." in told
    assert all(job in told for job in experiment.jobs)
    (example,) = re.findall(r"^  lab (run .*)", told, re.MULTILINE)
    _, *words = shlex.split(example)
    assert words[0] == experiment.name
    arguments.check("run", run.command, words)
    if "--cluster" in words:
        assert (ROOT / words[words.index("--cluster") + 1]).is_file()


def test_the_help_of_every_run_points_to_the_experiments(project: Path) -> None:
    for words in (["run"], ["run", "nothing-known"], ["run", "--backend", "local"], ["sweep"]):
        told = lab(project, *words, "--help").stdout
        assert "`lab run async --help`" in told
        assert "`lab experiments`" in told
        assert "--backend NAME" in told
        assert "--ps_strategy" not in told
        assert "nothing-known" not in told
    told = lab(project, "sweep", "async", "--help").stdout
    assert "flags of async:" in told
    assert "--ps_strategy VALUE" in told
    assert "--over" in told


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["help", "run"], ["experiments"]])
def test_no_pager_on_a_terminal(project: Path, words: list[str]) -> None:
    code, shown = on_a_terminal(project, words)
    assert code == 0
    assert "async" in shown or "usage" in shown


# ---- Exit codes and errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["validate", "cluster.yaml", "--cluster", "loop"], "two configs are given"),
        (["run", "async", "--data_dir", "loop"], "--data_dir: loop is not a directory"),
        (["run", "async", "--data_dir", "~nobody-here/x"], "~nobody-here/x is not a directory"),
        (["run", "~nobody-here/x.py"], "no program ~nobody-here/x.py"),
    ],
)
def test_cyclic_links_and_unknown_homes(project: Path, words: list[str], message: str) -> None:
    (project / "loop").symlink_to("loop")
    assert message in refused(lab(project, *words))


def test_invalid_config(project: Path) -> None:
    (project / "cluster.yaml").write_text(CLUSTER.replace("nodes:", "node:"))
    done = lab(project, "validate")
    assert done.returncode == 2
    assert done.stdout == ""
    assert all(line.startswith("cluster.yaml:") for line in done.stderr.splitlines())
    told = json.loads(lab(project, "validate", "--json").stdout)
    assert told["valid"] is False
    assert told["problems"] == done.stderr.splitlines()
    run = lab(project, "run", "async", "--backend", "local")
    assert (run.returncode, run.stderr) == (2, done.stderr)
    assert nothing_happened(project)


def test_missing_config(tmp_path: Path) -> None:
    line = refused(lab(tmp_path, "run", "async"))
    assert f"no cluster.yaml in {tmp_path}" in line
    assert "--cluster" in line


def test_a_program_with_a_syntax_error_starts_nothing(project: Path) -> None:
    (project / "scripts/mnist_async.py").write_text("x = 1\nif x\n    pass\n")
    line = refused(lab(project, "run", "async", "--backend", "local", "--gpus", "none"))
    assert "scripts/mnist_async.py:2:5: expected ':'" in line
    assert nothing_happened(project)


def test_a_program_that_is_missing(project: Path) -> None:
    (project / "scripts/mnist_async.py").unlink()
    assert "mnist_async.py, is missing" in refused(lab(project, "run", "async", "--gpus", "none"))


def test_binary_file_as_a_program(project: Path) -> None:
    (project / "scripts/mnist_async.py").write_bytes(b"\x00\xff\x1b]0;owned\x07")
    line = refused(lab(project, "run", "async", "--gpus", "none"))
    assert "mnist_async.py" in line
    assert "\x1b" not in line


def test_a_cluster_without_the_experiments_jobs(project: Path) -> None:
    (project / "clusters").mkdir()
    (project / "clusters/fits.yaml").write_text(CLUSTER)
    (project / "clusters/broken.yaml").write_text("{")
    text = CLUSTER.replace("ps: {on: [tf1]}", "chief: {on: [tf1]}")
    (project / "cluster.yaml").write_text(text)
    line = refused(lab(project, "run", "async", "--gpus", "none"))
    assert "needs the job 'ps', which cluster.yaml lacks; try --cluster clusters/fits.yaml" in line


def test_a_cluster_with_a_job_too_many(project: Path) -> None:
    (project / "clusters").mkdir()
    text = CLUSTER.replace("ps: {on: [tf1]}", "ps: {on: [tf1]}, chief: {on: [tf1]}")
    (project / "cluster.yaml").write_text(text)
    line = refused(lab(project, "run", "async", "--gpus", "none"))
    assert "cannot use the job 'chief' of cluster.yaml; remove it from `jobs:`" in line
    (project / "clusters/fits.yaml").write_text(CLUSTER)
    line = refused(lab(project, "run", "async", "--gpus", "none"))
    assert "the job 'chief' of cluster.yaml; try --cluster clusters/fits.yaml" in line


def test_best_config_for_an_experiment_is_named(project: Path) -> None:
    (project / "clusters").mkdir()
    for name in ("one-host", "workers"):
        (project / f"clusters/{name}.yaml").write_text((ROOT / f"clusters/{name}.yaml").read_text())
    line = refused(lab(project, "run", "multiworker", "--gpus", "none"))
    assert line.endswith("try --cluster clusters/workers.yaml")


def test_invalid_data_dir(project: Path) -> None:
    line = refused(lab(project, "run", "async", "--data_dir", "nowhere", "--gpus", "none"))
    assert "--data_dir: nowhere is not a directory" in line


def test_an_engine_that_does_not_answer(project: Path) -> None:
    done = lab(project, "run", "async", "--backend", "compose", "--gpus", "none")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: backend compose: ")
    assert not (project / "runs").exists()


def test_an_unwritable_runs_directory(project: Path) -> None:
    (project / "runs").write_text("a file")
    assert "runs is not a directory" in refused(lab(project, "runs"))


def test_listing_nothing(project: Path) -> None:
    for command in ("ls", "runs"):
        assert json.loads(lab(project, command, "--json").stdout) == []
        assert lab(project, command).returncode == 0
    for command in ("ps", "logs", "down"):
        assert "no environment is up; boot one with `lab up`" in refused(lab(project, command))
    assert "no environment 'x'" in refused(lab(project, "down", "x"))
    assert "no run in runs" in refused(lab(project, "show", "last"))
    assert lab(project, "down", "--all").returncode == 0


def test_show_and_runs_read_the_files(project: Path) -> None:
    make_run(project, "20260101-0000-async-aaaa", reason="worker-1 failed: \x1b]0;owned\x07[red]")
    shown = lab(project, "show", "last")
    assert shown.returncode == 0
    assert "\\x1b]0;owned\\x07[red]" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert json.loads(lab(project, "show", "2026", "--json").stdout)["state"] == "failed"
    (row,) = json.loads(lab(project, "runs", "--json").stdout)
    assert row["run_id"] == "20260101-0000-async-aaaa"
    table = lab(project, "runs").stdout
    assert "20260101-0000-async-aaaa" in table
    assert "failed" in table


def test_broken_pipe(project: Path) -> None:
    for number in range(300):
        make_run(project, f"20260101-0000-async-{number:04}")
    process = subprocess.Popen(
        [sys.executable, "-m", "lab", "runs", "--json"],
        cwd=project,
        env=environ(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
    process.wait(PATIENCE_S)


def test_a_full_disk_is_one_line(project: Path) -> None:
    done = lab(project, "render", "--gpus", "none", "--output", "/dev/full")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    with open("/dev/full", "w") as full:  # noqa: PTH123
        process = subprocess.run(
            [sys.executable, "-m", "lab", "schema"],
            cwd=project,
            env=environ(project),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert process.returncode == 1
    assert process.stderr.splitlines()[0].startswith("error: the disk is full; free some space")


def test_a_defect_shows_one_line_and_with_debug_its_traceback(project: Path) -> None:
    make_run(project, "20260101-0000-async-aaaa")
    write_atomically(project / "runs/20260101-0000-async-aaaa/status/ps-0.json", "{}")
    code = (
        "import sys; import lab.cli as cli; import lab.cli.commands.runs as runs;"
        "runs.all_runs = lambda home: 1 / 0;"
        "sys.exit(cli.main(sys.argv[1:]))"
    )

    def broken(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=project,
            env=environ(project),
            capture_output=True,
            text=True,
            check=False,
        )

    line = refused(broken("runs"), code=1)
    assert line.startswith("error: internal: ZeroDivisionError: ")
    assert line.endswith("run it again with --debug")
    for words in (("runs", "--debug"), ("--debug", "runs")):
        assert "Traceback" in broken(*words).stderr


def test_a_package_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def without() -> None:
        raise ModuleNotFoundError("No module named 'fire'", name="fire.core")

    def own_defect() -> None:
        raise ModuleNotFoundError("No module named 'lab.x'", name="lab.x")

    assert exit_code_of(without, debug=False) == 1
    text = capsys.readouterr().err
    assert text == "error: this Python has no package fire.core; use the Python of `make install`\n"
    assert exit_code_of(own_defect, debug=False) == 1
    assert capsys.readouterr().err.startswith("error: internal: ModuleNotFoundError")


def test_config_with_the_flag_or_without(project: Path) -> None:
    (project / "other.yaml").write_text(CLUSTER.replace("mnist", "other"))
    same = [["other.yaml"], ["--cluster", "other.yaml"], ["other.yaml", "--cluster=./other.yaml"]]
    for words in same:
        assert "other, 2 nodes, 2 tasks" in lab(project, "validate", *words).stderr
    rendered = [lab(project, "render", *words, "--output", "-").stdout for words in same]
    assert len(set(rendered)) == 1
    assert "\nname: other\n" in rendered[0]
    assert "usage: lab validate [FILE] [FLAGS]" in lab(project, "validate", "--help").stdout


def test_render_check_compares_with_the_same_tensorflow(project: Path) -> None:
    words = ("--gpus", "none", "--output", "old.yml")
    lab(project, "render", *words, "--tensorflow", "2.15")
    assert lab(project, "render", "--check", "--output", "old.yml").returncode == 0
    assert "lab:heritage-cpu" in (project / "old.yml").read_text()
    stale = lab(project, "render", "--check", "--output", "old.yml", "--tensorflow", "2.21")
    assert (stale.returncode, "old.yml is out of date" in stale.stderr) == (1, True)


def test_render_check_takes_the_form_from_the_file(project: Path) -> None:
    flags = ("--gpus-by", "cdi", "--network", "isolated")
    assert lab(project, "render", "--gpus", "none", *flags).returncode == 0
    fresh = lab(project, "render", "--check")
    assert (fresh.returncode, fresh.stdout) == (0, "")
    stale = lab(project, "render", "--check", "--network", "portable")
    assert stale.returncode == 1
    again = "write it again with `lab render cluster.yaml --gpus-by=cdi --gpus=none`"
    assert again in stale.stderr
    assert "gateway_mode_ipv4" in stale.stdout
    wrong = refused(lab(project, "render", "--gpus-by", "count"), code=2)
    assert "'count' is not nvidia or cdi" in wrong


def test_render_check(project: Path) -> None:
    assert "is missing" in refused(lab(project, "render", "--check", "--gpus", "none"), code=1)
    assert lab(project, "render", "--gpus", "none").returncode == 0
    fresh = lab(project, "render", "--check")
    assert (fresh.returncode, fresh.stdout) == (0, "")
    printed = lab(project, "render", "--gpus", "none", "--output", "-")
    assert printed.stdout == (project / "compose.yaml").read_text()
    (project / "cluster.yaml").write_text(CLUSTER.replace("tf2", "tf9"))
    stale = lab(project, "render", "--check")
    assert stale.returncode == 1
    assert "+" in stale.stdout
    assert "error: compose.yaml is out of date" in stale.stderr
    assert "tf9" not in (project / "compose.yaml").read_text()


@pytest.mark.parametrize("flag", ["--shout", "--epochs=3"])
def test_program_flag_before_the_dashes(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = flag.partition("=")[0]
    assert main(["run", "mine/my.py", flag]) == 2
    assert capsys.readouterr().err == (
        f"error: {name} is no option of `lab run`; put the flags of mine/my.py after `--`:"
        f" `lab run mine/my.py -- {name}`\n"
    )
