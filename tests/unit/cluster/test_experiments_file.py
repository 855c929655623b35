"""Experiments from outside: `experiments.yaml` of a project or a package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import indent

import pytest

from lab.base.errors import ConfigError, InputError
from lab.cluster.experiments import experiment_named, outside_experiments
from lab.cluster.project import Project
from lab.protocol.experiments.experiment import Policy
from lab.protocol.volume import RunSpec
from lab.runner.own_experiment import named_experiment
from lab.runner.record import create_run
from lab.runner.store.run_info import RunInfo
from lab.runner.store.settings import command, settings_of
from lab.verbs.run import program_flags
from tests.support.packages import Install
from tests.support.specs import CONFIG, prepared_run

BERT = """\
program: scripts/bert.py
summary: a small BERT
jobs: [worker]
framework: torch
"""


def written(folder: Path, entry: str = BERT, name: str = "bert-tiny") -> Path:
    (folder / "scripts").mkdir(exist_ok=True)
    (folder / "scripts/bert.py").write_text("print('step 1 loss 2')\n")
    (folder / "scripts/circle.py").symlink_to("circle.py")
    text = f"version: 1\nexperiments:\n  {name}:\n{indent(entry, '    ')}"
    (folder / "experiments.yaml").write_text(text)
    return folder


def test_an_experiment_of_a_project_has_what_its_file_states(tmp_path: Path) -> None:
    more = (
        "counts: {worker: 2}\nargs: [--lr=0.1]\nresults: [f1]\nexpected: F1 above 0.8\n"
        "on_failure: restart:2\nflags:\n"
        "  epochs: {help: passes, default: 3}\n  lr: {help: step size, default: 0.5}\n"
        "  fast: {help: less, default: false}\n  task: {help: which, choices: [qa, ner]}\n"
        "  note: {help: any text}\n"
    )
    found = experiment_named("bert-tiny", written(tmp_path, BERT + more))
    assert found.program == str(tmp_path / "scripts/bert.py")
    assert (found.jobs, found.counts, found.services) == (("worker",), {"worker": 2}, ())
    assert (found.args, found.results, found.origin) == (
        ("--lr=0.1",), ("f1",), "experiments.yaml",
    )  # fmt: skip
    assert found.policy == Policy("restart", 2)
    read = {name: flag.parse for name, flag in found.flags.items()}
    assert (read["epochs"]("7"), read["lr"]("-1e-3"), read["fast"]("true")) == (7, -0.001, True)
    assert (read["task"]("qa"), read["note"]("x y")) == ("qa", "x y")
    assert found.flags["fast"].is_switch
    for name, text in {"epochs": "many", "lr": "inf", "task": "pos"}.items():
        with pytest.raises(ValueError, match=r"number|qa or ner"):
            read[name](text)


@pytest.mark.parametrize(
    ("entry", "name", "line"),
    [
        (BERT + "speed: 1\n", "x", "experiments.x.speed: unknown key"),
        (BERT.replace("scripts/bert", "../bert"), "x", "program: must be below"),
        (BERT.replace("scripts/bert.py", "/etc/passwd"), "x", "program: must be below"),
        (BERT.replace("scripts/bert", "scripts/bart"), "x", "program: there is no such file"),
        (BERT.replace("scripts/bert", "scripts/circle"), "x", "program: there is no such file"),
        (BERT.replace("torch", "tensorfow"), "x", 'did you mean "tensorflow"?'),
        (BERT.replace("[worker]", "[]"), "x", "experiments.x.jobs: "),
        (BERT + "counts: {ps: 1}\n", "x", "counts.ps: is not one of `jobs`"),
        (BERT + "on_failure: cry\n", "x", "must be fail, restart, restart:N or continue"),
        (
            BERT + "flags: {f: {help: h, default: true}}\n",
            "x",
            "f.default: must be false: the flag",
        ),
        (
            BERT + "flags: {f: {help: h, choices: [a, b], default: c}}\n",
            *("x", "f.default: is not one of a, b"),
        ),
        (BERT, "async", "lab has an experiment async; use another name"),
        (BERT, "Bad_name", "experiments.Bad_name: "),
        (BERT.replace("a small BERT", '"\\e[31m"'), "x", "experiments.x.summary: "),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_place(
    tmp_path: Path, entry: str, name: str, line: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        outside_experiments(written(tmp_path, entry, name))
    text = str(caught.value)
    assert line in text
    assert f"{tmp_path}/experiments.yaml:" in text
    assert "\x1b" not in text


def test_a_flag_of_lab_run_cannot_be_one_of_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written(tmp_path, BERT + "flags: {on_failure: {help: h}}\n"))
    with pytest.raises(InputError) as caught:
        program_flags("bert-tiny")
    assert str(caught.value) == (
        "experiments.yaml: bert-tiny has the flag --on_failure of `lab run`;"
        " rename the program's flag"
    )


def test_a_link_to_nowhere_is_not_taken_for_no_file(tmp_path: Path) -> None:
    (tmp_path / "experiments.yaml").symlink_to("nowhere.yaml")
    with pytest.raises(InputError, match="there is no file"):
        outside_experiments(tmp_path)


def test_an_unknown_experiment_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no experiment 'bert-tony'; did you mean 'bert-tiny'"):
        experiment_named("bert-tony", written(tmp_path))


def test_a_package_adds_experiments_and_a_broken_one_only_warns(
    install: Install, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("fleet", "rival", "torn"):
        written(install(name, {"experiments": f"{name} = {name}"}, {}))
    (tmp_path / "site-packages/torn/experiments.yaml").write_text("version: 2\n")
    install("empty", {"experiments": "none = empty"}, {})
    found = outside_experiments(tmp_path)["bert-tiny"]
    assert (found.origin, Path(found.program).is_file()) == ("fleet 1.2", True)
    outside_experiments(tmp_path)  # a command looks several times
    assert len(caplog.messages) == 3
    lines = "\n".join(caplog.messages)
    assert (
        "plug-in 'rival' of rival 1.2 cannot be used: its experiment bert-tiny also belongs"
        in lines
    )
    assert "plug-in 'torn' of torn 1.2 cannot be used: " in lines
    assert "plug-in 'none' of empty 1.2 cannot be used: there is no file" in lines
    mine = tmp_path / "mine"
    mine.mkdir()
    assert outside_experiments(written(mine))["bert-tiny"].origin == "experiments.yaml"


def test_a_run_of_one_is_a_run_of_the_users_own_program_under_its_name(tmp_path: Path) -> None:
    root = written(tmp_path, BERT + "args: [--lr=1]\nresults: [f1]\non_failure: continue\n")
    project = Project(CONFIG, root / "cluster.yaml", root)
    wanted = experiment_named("bert-tiny", root)
    asked = RunSpec("bert-tiny", args=("--epochs=1",))
    experiment, own = named_experiment(wanted, asked, None, project)
    spec = own.complete(replace(asked, experiment=experiment.name).completed(experiment))
    assert (spec.own, spec.program, spec.experiment) == (True, "bert.py", "bert-tiny")
    assert (spec.args, spec.results) == (("--lr=1", "--epochs=1"), ("f1",))
    assert (spec.on_failure, spec.framework) == ("continue", "torch")
    assert command(RunInfo("r1", spec)).startswith("lab run bert-tiny ")
    with pytest.raises(InputError, match="needs torch; leave out --framework"):
        named_experiment(wanted, asked, "jax", project)


FLAGS = """\
args: [--lr=0.1]
flags:
  epochs: {help: passes, default: 3}
  lr: {help: step size, default: 0.5}
  fast: {help: less, default: false}
  seed: {help: of the first values, default: 0}
  note: {help: any text}
"""


def test_a_run_of_one_records_the_values_of_its_flags(tmp_path: Path) -> None:
    wanted = experiment_named("bert-tiny", written(tmp_path, BERT + FLAGS))
    asked = RunSpec("bert-tiny", args=("--epochs=1", "--fast", "more")).completed(wanted)
    spec = replace(asked, own=True, program="bert.py")
    run = create_run(replace(prepared_run(tmp_path), spec=spec, experiment=wanted))
    info = run.read()
    assert info.hyperparameters == {"epochs": 1, "lr": 0.1, "fast": True, "seed": 0}
    assert info.seed == 0
    assert info.spec.args == spec.args
    settings = settings_of(run, info)
    assert (settings["epochs"], settings["fast"], settings["other arguments"]) == (
        "1", "True", "more",
    )  # fmt: skip
    assert "seed" not in settings
