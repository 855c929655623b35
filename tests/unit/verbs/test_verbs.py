"""Commands as functions: values or texts as arguments, and results that show themselves."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest

import lab
from lab.base.options import ProgramArguments, parameters
from lab.runner.store.directory import RunDir
from lab.verbs import COMMANDS, python_name
from lab.verbs.experiments import experiments
from tests.support.cli import CLUSTER, Cli, make_run

RUN = "20260101-0000-async-aaaa"


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a config and a failed run, whose program has printed two lines."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    make_run(tmp_path, RUN, reason="worker-0 failed")
    log = RunDir(tmp_path / "runs" / RUN).log("worker-0")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("one\ntwo\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("stored")
def test_the_results_of_a_run_are_a_table_and_json(cli: Cli) -> None:
    found = lab.show(lab.find("last"))
    assert found.summary.state == "failed"
    assert found.to_json()["run_id"] == RUN
    assert "<td" in found._repr_html_()
    assert repr(found) == repr(lab.show("last"))
    assert repr(found).split() == cli("show", "last").out.split()


@pytest.mark.usefixtures("stored")
def test_the_lines_of_a_run_are_read_by_each_loop(cli: Cli) -> None:
    for tail in (1, "1"):
        found = lab.logs("last", task="worker-0", tail=tail)
        assert [*found] == [*found] == found.to_json() == ["worker-0  | two"]
    assert cli("logs", "last", "--tail", "1").out == "worker-0  | two\n"
    assert json.loads(cli("logs", "last", "--json").out) == ["worker-0  | one", "worker-0  | two"]
    with pytest.raises(lab.InputError, match=r"^tail: 'x' is not a whole number"):
        lab.logs("last", tail="x")
    with pytest.raises(lab.InputError, match="--since is only for an environment"):
        lab.logs("last", since="10m")


def test_a_config_is_checked(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = lab.validate("cluster.yaml")
    assert found.config.name == "mnist"
    assert found.to_json()["valid"] is True
    found.show()
    assert "cluster.yaml: valid: mnist, 2 nodes, 2 tasks" in capsys.readouterr().err
    (stored / "cluster.yaml").write_text("version: 1\n")
    with pytest.raises(lab.ConfigError) as error:
        lab.validate()
    assert error.value.problems


@pytest.mark.usefixtures("stored")
def test_answers_are_a_mapping_or_texts() -> None:
    for answer in ({"updates": 1650}, ["updates=1650"], "updates=1650"):
        found = lab.check("async", answer=answer)
        (reply,) = (
            each for stage in found.results["async"] for each in stage.replies if each.given
        )
        assert (reply.question, reply.given) == ("updates", "1650")
        assert "train" in repr(found)
        with pytest.raises(lab.LabError, match=r"^async: not right: updates; see"):
            found.check()
    assert set(lab.check().to_json()) > {"async", "sync"}


def test_lists_have_a_row_for_each_element() -> None:
    assert {each["name"] for each in experiments().to_json()} > {"async", "sync"}
    assert "--epochs" in repr(experiments("async"))
    assert "local: " in repr(lab.backends_())
    with pytest.raises(lab.InputError, match="did you mean 'async'"):
        experiments("asink")


@pytest.mark.usefixtures("stored")
def test_a_fault_names_its_run() -> None:
    with pytest.raises(lab.InputError, match=f"run {RUN} is not under way"):
        lab.fault("kill worker-0 after 500 steps")
    with pytest.raises(lab.InputError, match="kil"):
        lab.fault("kil", "worker-0")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_python_has_every_argument(command: str) -> None:
    function = getattr(lab, python_name(command))
    names = [*inspect.signature(function).parameters]
    lines = (inspect.getdoc(function) or "").splitlines()
    found = re.findall(r"(?m)^    \**(\w+): \S", "\n".join(lines).partition("\nArgs:\n")[2])
    assert found[: len(names)] == names
    assert "\nArgs:\n    " in "\n".join(lines) or not names
    text = " ".join(" ".join(lines).split())
    for each in parameters(function):
        if not isinstance(each.kind, ProgramArguments):
            assert f"{each.name}: {each.help} " in f"{text} "
