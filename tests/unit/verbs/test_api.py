"""The Python API: its arguments, its results, and its errors."""

from __future__ import annotations

import inspect
import math
import pkgutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

import lab
from lab.base.errors import ConfigError, InputError, LabError
from lab.cli.registry import COMMANDS
from lab.cluster.project import default_name
from lab.protocol.volume import Request, RunSpec, Volume
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summary import Summary, TaskSummary, write_summary
from lab.verbs import python_name
from tests.support.cli import ROOT, Host
from tests.support.fakes import CLUSTER, FakeEnvironment, end_all, fail, train

SAMPLES = ROOT / "notebooks/samples"


@pytest.fixture
def environment(host: Host) -> FakeEnvironment:
    Path("notebooks").mkdir()
    Path("own.py").write_text("p.add_argument('--kind')")
    Path("cluster.yaml").write_text(CLUSTER)
    host.backend.environment, host.backend.made = None, host.environment
    return host.environment


def refusal(function: Callable[..., object] = lab.run, /, **arguments: object) -> str:
    if function is lab.run:
        arguments = {"experiment": "async", "gpus": "none", **arguments}
    with pytest.raises(InputError) as caught:
        function(**arguments)
    assert not Path("runs").exists()
    return str(caught.value)


def test_train_returns_the_result_of_a_run(
    environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    done = lab.run("async", epochs=2, learning_rate=0.25, seed=4)
    assert environment.is_down
    (request,) = environment.runs()
    assert request.spec.args[-3:] == ("--epochs=2", "--learning_rate=0.25", "--seed=4")
    assert (done.id, done.path) == (request.run_id, Path("runs") / request.run_id)
    assert done.info.hyperparameters["epochs"] == 2
    assert done.info.cluster_file == "cluster.yaml"
    assert (done.summary.state, done.summary.accuracy) == ("succeeded", 0.75)
    assert len(done.records()) == 10
    assert list(done.steps(["worker-1"])["global_step"]) == [200, 300]
    out, err = capfd.readouterr()
    assert out == ""
    assert f"run {done.id}: succeeded" in err
    assert "booting" in err


@pytest.mark.parametrize("share", [True, False])
def test_quiet(
    environment: FakeEnvironment, capfd: pytest.CaptureFixture[str], share: bool
) -> None:
    lab.run("async", quiet=True, gpus="none", share=share)
    assert capfd.readouterr() == ("", "")
    assert environment.shares is share


def test_a_quiet_run_prints_only_warnings_and_records_every_notice(
    environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("100%s.py").write_text("c = tf.train.ClusterSpec({'ps': ['10.0.0.4:80']})")
    notices = lab.run("100%s.py", quiet=True, gpus="none").info.notices
    warnings = [line for line in notices if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert "100%s.py has addresses of other hosts in its source" in warnings[0]
    assert "local: links are not applied" in notices
    assert capfd.readouterr() == ("", f"{warnings[0]}\n")


def test_a_notebook_in_the_project_finds_its_config(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("notebooks")
    done = lab.run("async", runs_dir="../runs")
    assert done.path.parent == Path("../runs")
    assert default_name() == environment.project  # for `lab down` and others
    assert lab.runs("../runs") == [done]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_a_function_of_lab_whatever_is_imported(command: str) -> None:
    for each in pkgutil.iter_modules(lab.__path__):
        import_module(f"lab.{each.name}")
    name = python_name(command)
    assert inspect.isfunction(getattr(lab, name))
    assert getattr(lab, name) is getattr(import_module(f"lab.verbs.{name}"), name)
    assert name in lab.__all__


def test_the_package_lists_its_names() -> None:
    assert set(dir(lab)) == set(lab.__all__)
    assert all(getattr(lab, name).__doc__ for name in dir(lab))


def test_without_a_config_the_shipped_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert lab.plan() == lab.plan(ROOT / "cluster.yaml")
    with pytest.raises(
        InputError, match=r"no cluster\.yaml in .*; write a project with `lab init`"
    ):
        lab.render(output="-")


def test_config_object(environment: FakeEnvironment) -> None:
    done = lab.run("async", cluster=lab.load("cluster.yaml"))
    assert done.info.cluster_file == ""
    assert done.info.cluster_sha256 == lab.plan("cluster.yaml").cluster_sha256
    assert lab.find("last") == lab.find(done.id) == done


def test_a_failed_run_raises_unless_check_is_false(
    environment: FakeEnvironment,
) -> None:
    environment.tasks_do = fail
    with pytest.raises(LabError, match=r"failed .*exit code 3"):
        lab.run("async", quiet=True)
    assert environment.is_down
    assert lab.run("async", check=False).summary.state == "failed"


def prints(volume: Volume, request: Request) -> None:
    volume.log(request.run_id, "worker-0").write_text("batch 3 loss 0.5\n" * 5)
    end_all(volume, request, State.SUCCEEDED, exit_code=0)


@pytest.mark.parametrize("check", [True, False])
def test_lines_that_are_not_read_are_reported(
    environment: FakeEnvironment, capfd: pytest.CaptureFixture[str], check: bool
) -> None:
    environment.tasks_do = prints
    Path("own.py").write_text("import os; os.environ['TF_CONFIG']\n")
    lab.run("own.py", check=check)
    assert capfd.readouterr().err.count("read from own.py's lines") == 1


def test_ctrl_c_removes_the_environment(
    environment: FakeEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream, interrupts = environment.stream, iter([KeyboardInterrupt])

    def interrupted(run_id: str, *given: Any, **how: Any) -> object:
        for interrupt in interrupts:
            train(environment.volume, environment.runs()[-1])
            raise interrupt
        return stream(run_id, *given, **how)

    environment.tasks_do = lambda *_: None
    monkeypatch.setattr(environment, "stream", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab.run("async")
    assert environment.is_down
    assert f"run {lab.find('last').id} was interrupted" in capfd.readouterr().err


REFUSED: dict[str, dict[str, object]] = {
    "a flag": {"epoch": 3},
    "a duration of text": {"stall": "5 minutes"},
    "a negative duration": {"stall": -1},
    "no number": {"max_time": math.nan},
    "a value": {"epochs": 0},
    "a value with another command": {"epochs": "3; rm"},
    "a backend": {"backend": "cloud"},
    "a policy": {"on_failure": "panic"},
    "a schedule": {"start": "soon"},
    "a task of a schedule": {"start": {"worker-9": "1s"}},
    "a step of a schedule": {"epochs": 1, "start": "worker-1: after 9999 steps"},
    "a fault": {"fault": "hug worker-1"},
    "an experiment": {"experiment": "asink"},
    "a mode": {"gpus": "many"},
    "a flag of an own program": {"experiment": "./own.py", "epochs": 2},
    "an expression": {"experiment": "own.py", "record": "it ("},
    "an expression of an experiment": {"record": r"it (?P<step>\d+)"},
    "a line break": {"experiment": "async\nerror: x\r\x1b[2J"},
}


def test_errors_are_reported_before_anything_starts(
    environment: FakeEnvironment, snapshot: SnapshotAssertion
) -> None:
    errors = {name: refusal(**arguments) for name, arguments in REFUSED.items()}
    assert errors == snapshot
    assert [error for error in errors.values() if not error.isprintable()] == []


def test_the_errors_of_a_config_have_a_line_each() -> None:
    error = ConfigError(["a.yaml:1:1: a\nb", "a.yaml:2:1: c"])
    assert str(error) == "a.yaml:1:1: a\\x0ab\na.yaml:2:1: c"


def test_own_program_gets_its_arguments(environment: FakeEnvironment) -> None:
    expression = r"it (?P<step>\d+)"
    done = lab.run("own.py", args=["--depth=3"], record=expression, quiet=True)
    lab.run("own.py", args="--depth=4", quiet=True)
    first, second = (request.spec for request in environment.runs())
    assert (first.own, first.args, second.args) == (True, ("--depth=3",), ("--depth=4",))
    assert first.record == done.info.spec.record == expression


def test_boolean_flags(environment: FakeEnvironment) -> None:
    lab.run("async", log_device_placement=True, quiet=True)
    lab.run("async", log_device_placement=False, quiet=True)
    first, second = (request.spec.args for request in environment.runs())
    assert any(word.startswith("--log_device_placement") for word in first)
    assert "--log_device_placement" not in second


def test_only_the_main_thread_gets_ctrl_c(environment: FakeEnvironment) -> None:
    caught: list[LabError] = []

    def elsewhere() -> None:
        try:
            lab.run("async")
        except LabError as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(30)
    assert str(caught[0]).startswith("`run()` must be called from the main thread")
    assert not Path("runs").exists()


def a_run(store: Path, day: int, text: str = "<i>async</i>") -> RunDir:
    directory = RunDir(store / f"2026112{day}-0810-async-7f3a")
    facts: dict[str, Any] = {"backend": text, "reason": text, "collected": True}
    info = RunInfo(directory.run_id, RunSpec(text), **facts, started_unix=1e9 + day)
    directory.create(replace(info, state=State.SUCCEEDED))
    task = TaskSummary(text, "w", 0, text, [], "failed", 1, 1, None, 3, *[None] * 5)
    summary = Summary(
        info.run_id, text, text, "succeeded", text, True, 7, None, None, 0, "", 0.5, 1.0, 1650,
        None, 0, [task],
    )  # fmt: skip
    write_summary(directory, summary)
    return directory


def test_hostile_text_stays_text_in_a_notebook(tmp_path: Path) -> None:
    html = lab.Run(a_run(tmp_path, 1, "<script>alert(1)</script>\x1b[2J"))._repr_html_()
    assert "<script" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J" in html


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for day in range(3):
        a_run(tmp_path, day)
    (tmp_path / "20261121-0810-async-7f3a" / "run.json").write_text("{")
    return tmp_path


def test_runs_are_a_table_that_shows_damaged_runs(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = lab.runs(store)
    assert isinstance(runs, list)
    text = repr(runs)
    assert [line.split()[:2] for line in text.splitlines()[2:5]] == [
        ["20261121-0810-async-7f3a", "damaged"],
        ["20261120-0810-async-7f3a", "<i>async</i>"],
        ["20261122-0810-async-7f3a", "<i>async</i>"],
    ]
    assert "run 20261121-0810-async-7f3a damaged: " in text
    assert "&lt;i&gt;async&lt;/i&gt;" in runs._repr_html_()
    assert "<i>" not in runs._repr_html_()
    assert "is damaged" in runs[0]._repr_html_()
    assert repr(runs[1]).startswith("run 20261120-0810-async-7f3a: <i>async</i> on <i>async</i>, s")
    # A slice is a table, too.
    assert isinstance(runs[1:], lab.Runs)
    assert "damaged" not in repr(runs[1:])
    assert repr(runs[:0]) == "no runs"
    monkeypatch.setattr("lab.verbs.results.MAX_SHOWN", 2)
    assert "damaged" not in repr(runs)
    assert "1 earlier run not shown" in repr(runs)


def test_runs_as_a_data_frame(store: Path) -> None:
    frame = lab.runs(store).frame()
    assert list(frame["state"]) == ["damaged", "succeeded", "succeeded"]
    assert frame["started"].dt.year.tolist()[1:] == [2001, 2001]
    assert lab.runs(store / "empty").frame().empty


def test_figures_leave_no_state() -> None:
    code = (
        "import matplotlib as mpl; before = dict(mpl.rcParams);"
        "import lab;"
        f"png, size = lab.runs({str(SAMPLES)!r})[0].figure('loss')._repr_png_();"
        "assert png.startswith(b'\\x89PNG') and size['width'] > 100;"
        "import matplotlib.pyplot as plt; assert plt.get_fignums() == [];"
        "assert dict(mpl.rcParams) == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_figures_of_several_runs() -> None:
    run = next(run for run in lab.runs(SAMPLES) if run.info.spec.experiment == "sync")
    with pytest.raises(LabError, match=r"figure 'staleness' of run .* no record has a staleness"):
        run.figure("staleness")
    assert len(lab.figure("loss", [run, run]).axes) == 3  # by updates, time and images


def test_heavy_imports_are_lazy() -> None:
    heavy = "{'tensorflow', 'docker', 'pandas', 'numpy', 'scipy', 'matplotlib', 'msgspec'}"
    code = f"import sys; import lab; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


WRONG: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "a way": (lab.simulate, {"way": "asink"}),
    "a number of workers": (lab.simulate, {"way": "async", "workers": 0}),
    "too many workers": (lab.simulate, {"way": "async", "workers": 512}),
    "ps of multiworker": (lab.simulate, {"way": "multiworker", "ps": 1}),
    "quantities": (lab.sweep, {"experiment": "async", "over": "batch_size"}),
    "no values": (lab.sweep, {"experiment": "async", "over": {"workers": []}}),
    "repeats": (lab.sweep, {"experiment": "async", "over": "batch_size=5", "repeats": 0}),
    "a backend": (lab.sweep, {"experiment": "async", "over": "batch_size=5", "backend": "cloud"}),
    "a source": (lab.reproduce, {"name": "book-asinc"}),
    "no runs": (lab.reproduce, {"name": "book-async", "runs": []}),
    "a run": (lab.reproduce, {"name": "book-async", "runs": ["x"]}),
    "too many repeats": (lab.reproduce, {"name": "book-async", "repeats": 101}),
    "a figure": (lab.figure, {"name": "looss", "runs": [lab.runs(SAMPLES)[0]]}),
    "a figure of no run": (lab.figure, {"name": "loss", "runs": []}),
}


def test_errors_of_other_functions(
    environment: FakeEnvironment, snapshot: SnapshotAssertion
) -> None:
    assert {name: refusal(call, **given) for name, (call, given) in WRONG.items()} == snapshot


def test_a_sweep_runs_its_grid(
    environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    found = lab.sweep("async", {"batch_size": [50, 100]}, repeats=2, epochs=1, seed=7, gpus="none")
    given = [request.spec.args[-3:] for request in environment.runs()]
    assert given == [
        ("--seed=7", f"--batch_size={size}", f"--seed={seed}")
        for seed in (7, 8)
        for size in (50, 100)
    ]
    frame = found.frame()
    assert list(frame["run_id"]) == [run.id for run in found.runs]
    assert list(frame["batch_size"]) == [50, 100, 50, 100]
    assert frame["accuracy"].mean() == 0.75
    assert found.settings[0].runs == 2
    assert "batch_size" in found._repr_html_()
    assert repr(found).startswith("batch_size")
    out, err = capfd.readouterr()
    assert out == ""
    assert "4/4 batch_size=100: " in err


def test_reproduce_evaluates_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    chapter = next(run for run in lab.runs(SAMPLES) if run.info.hyperparameters.get("epochs") == 50)
    found = lab.reproduce("book-async", runs=[chapter, str(chapter.path)], runs_dir=tmp_path)
    assert [run.id for run in found.runs] == [chapter.id]
    assert not found.reproduced  # one run is too few, and its start is fitted
    frame = found.frame()
    assert len(frame) == len(found.claims)
    row = frame.set_index("claim").loc["global-step.worker-0.epoch-9.step-5500"]
    assert (row["verdict"], row["why"]) == ("INCONCLUSIVE", "1 of 8 runs")
    assert row["ours"] == pytest.approx(row["printed"], rel=0.025)
    assert "INCONCLUSIVE" in found._repr_html_()
    (saved,) = tmp_path.glob("reproduce-book-async-*.json")
    assert str(saved) in capfd.readouterr().err
    every = lab.reproduce("all", runs=chapter, runs_dir=tmp_path)  # a run is a path, too
    assert [run.id for run in every.runs] == [chapter.id]
    assert set(every.frame()["source"]) == {each.name for each in every.evaluations}
    with pytest.raises(InputError, match="--seed is only for new runs"):
        lab.reproduce("book-async", runs=[chapter], seed=0)


def test_reproduce_runs_what_is_missing(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("clusters").mkdir()
    Path("clusters/book.yaml").write_text((ROOT / "clusters/book.yaml").read_text())
    Path("scripts/async_fast.py").write_text("")
    monkeypatch.chdir("notebooks")
    found = lab.reproduce("book-async", repeats=1, seed=5, gpus="none", quiet=True)
    (run,) = found.runs  # the other one has the same records
    assert run.info.hyperparameters["seed"] == 5
