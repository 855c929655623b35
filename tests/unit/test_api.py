"""The Python API: its arguments, its results, and its errors."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import api
from lab.backends import Check, Notify, no_check
from lab.backends.selection import BACKENDS
from lab.errors import ConfigError, InputError, LabError
from lab.placement.plan import Plan
from lab.run.run_info import RunInfo
from lab.run.run_queue import Ticket, turn
from lab.run.store import RunDir
from lab.run.summary import Summary, TaskSummary, write_summary
from lab.service.target import Target, find_target
from lab.task.protocol import Request, RunSpec, Volume
from lab.task.protocol.policy import OnFailure
from lab.task.protocol.states import State
from tests.support.fakes import FakeBackend, FakeEnvironment, end, train

CLUSTER = """\
version: 1
name: mnist
nodes: {tf1: {}, tf2: {}, tf3: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2, tf3]}}
"""


class Boots(FakeBackend):
    """Boots its environment, which is not up before."""

    def find(self, project: str) -> FakeEnvironment | None:
        return None

    def up(
        self,
        plan: Plan,
        *,
        root: Path,
        notify: Notify,
        check: Check = no_check,
        share: bool = False,
    ) -> FakeEnvironment:
        notify("booting")
        found = super().up(plan, root=root, notify=notify, check=check, share=share)
        found.plan = plan
        return found


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEnvironment]:
    (tmp_path / "volume").mkdir()
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "mnist_async.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    made = FakeEnvironment(tmp_path / "volume")
    monkeypatch.setattr("lab.service.run.backends", lambda: [Boots("local", made)])
    yield made
    for thread in made.threads:
        thread.join(30)


def refusal(**arguments: object) -> str:
    """The error of `run` for these arguments; nothing may have been started, or written."""
    with pytest.raises(InputError) as caught:
        api.run(**{"experiment": "async", "gpus": "none", **arguments})  # type: ignore[arg-type]
    assert not Path("runs").exists()
    return str(caught.value)


def test_train_returns_the_result_of_a_run(
    environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    done = api.run("async", epochs=2, learning_rate=0.25, seed=4)
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
def test_gpus_are_shared_only_on_request(environment: FakeEnvironment, share: bool) -> None:
    api.run("async", quiet=True, gpus="none", share=share)
    assert environment.shares is share


def test_wait_waits_for_another_run(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with turn(FakeBackend("local"), "mnist", wait=False, notify=str) as mine:
        mine.begin("r1")
        with pytest.raises(LabError, match="run r1 is under way in environment 'mnist'"):
            api.run("async", quiet=True, gpus="none")
        assert not Path("runs").exists()

    def wait(self: Ticket) -> None:
        asked.append(self.project)

    asked: list[str] = []
    monkeypatch.setattr(Ticket, "wait", wait)
    api.run("async", quiet=True, gpus="none", wait=True)
    assert asked == ["mnist"]


def test_environment_is_searched_again_after_waiting(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Target] = []

    def find(*args: Any, **options: Any) -> Target:
        found.append(find_target(*args, **options))
        return found[-1]

    def wait(self: Ticket) -> None:
        self.waited = True

    monkeypatch.setattr("lab.service.run.find_target", find)
    api.run("async", quiet=True, gpus="none")
    assert len(found) == 1
    monkeypatch.setattr(Ticket, "wait", wait)
    api.run("async", quiet=True, gpus="none", wait=True)
    assert len(found) == 3


def test_quiet(environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]) -> None:
    api.run("async", quiet=True, gpus="none")
    assert capfd.readouterr() == ("", "")


def test_gpus_are_sampled_while_it_is_followed(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled: list[str] = []

    @contextlib.contextmanager
    def watched(run: RunDir, info: RunInfo, view: object) -> Iterator[None]:
        assert info.tasks
        sampled.append(run.run_id)
        yield

    monkeypatch.setattr("lab.api.training.sampled", watched)
    assert [api.run("async", quiet=quiet).id for quiet in (True, False)] == sampled


def test_a_notebook_in_the_project_finds_its_config(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("notebooks").mkdir()
    monkeypatch.chdir("notebooks")
    done = api.run("async", runs_dir="../runs")
    assert done.path.parent == Path("../runs")
    assert api.runs("../runs") == [done]


def test_config_object(environment: FakeEnvironment) -> None:
    done = api.run("async", cluster=api.load("cluster.yaml"))
    assert done.info.cluster_file == ""
    assert done.info.cluster_sha256 == api.plan("cluster.yaml").cluster_sha256
    assert api.find("last") == api.find(done.id) == done


def test_start_and_resume_options_are_passed_on(environment: FakeEnvironment) -> None:
    done = api.run(
        "async",
        start={"worker-1": "10s"},
        faults=["pause:1s worker-1 after 5 steps", "kill worker-1 after 9 steps"],
        on_failure="restart:2",
        stall=7,
        max_time=600,
        ready_within=8.0,
    )
    info = done.info
    assert info.spec.start == {"worker-1": "10s"}
    assert info.spec.faults == ("pause:1s worker-1 after 5 steps", "kill worker-1 after 9 steps")
    assert (info.spec.on_failure, info.spec.restarts) == (OnFailure.RESTART, 2)
    assert (info.spec.stall_s, info.spec.ready_s, info.spec.max_time_s) == (7, 8, 600)


@pytest.mark.parametrize("given", ["kind=job_name", {"kind": "job_name"}])
def test_the_meanings_of_flags_are_passed_on(
    environment: FakeEnvironment, given: str | dict[str, str]
) -> None:
    Path("own.py").write_text("p.add_argument('--kind')")
    done = api.run("own.py", map=given)
    assert done.info.spec.cluster_args == ("--kind={job}",)
    assert refusal_of_map("kind") == "map: 'kind' is not FLAG=MEANING, such as task_type=job_name"
    assert refusal_of_map({"kind": "role"}).startswith("--map kind=role: no meaning 'role'")


def refusal_of_map(given: str | dict[str, str]) -> str:
    with pytest.raises(InputError) as caught:
        api.run("own.py", map=given)
    return str(caught.value)


def fails(volume: Volume, request: Request) -> None:
    for task in request.tasks():
        end(volume, request.run_id, task, State.FAILED, exit_code=3)


def test_a_failed_run_raises_unless_check_is_false(
    environment: FakeEnvironment,
) -> None:
    environment.tasks_do = fails
    with pytest.raises(LabError, match=r"failed .*exit code 3"):
        api.run("async", quiet=True)
    assert environment.is_down
    assert api.run("async", check=False).summary.state == "failed"


def prints(volume: Volume, request: Request) -> None:
    for task in request.tasks():
        end(volume, request.run_id, task, State.SUCCEEDED, exit_code=0)
    volume.log(request.run_id, "worker-0").write_text("batch 3 loss 0.5\n" * 5)


@pytest.mark.parametrize("check", [True, False])
def test_lines_that_are_not_read_are_reported(
    environment: FakeEnvironment, capfd: pytest.CaptureFixture[str], check: bool
) -> None:
    environment.tasks_do = prints
    Path("own.py").write_text("import os; os.environ['TF_CONFIG']\n")
    api.run("own.py", check=check)
    assert capfd.readouterr().err.count("read from own.py's lines") == 1


def test_ctrl_c_removes_the_environment(
    environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        train(environment.volume, environment.runs()[-1])
        raise KeyboardInterrupt

    environment.tasks_do = lambda *_: None
    environment.inject_fault = interrupted  # type: ignore[method-assign]
    ship = environment.stream

    def shipping(run_id: str, offsets: object, **how: bool) -> object:
        if not environment.is_down and len(asked) == 0:
            asked.append(run_id)
            interrupted()
        return ship(run_id, offsets, **how)  # type: ignore[arg-type]

    asked: list[str] = []
    environment.stream = shipping  # type: ignore[assignment, method-assign]
    with pytest.raises(KeyboardInterrupt):
        api.run("async")
    assert environment.is_down
    assert f"run {api.find('last').id} was interrupted" in capfd.readouterr().err


def test_errors_are_reported_before_anything_starts(environment: FakeEnvironment) -> None:
    assert refusal(epoch=3) == (
        "'async' has no flag 'epoch'; did you mean 'epochs'? see `lab experiments async`"
    )
    for name, value in (("stall", "5m"), ("stall", -1), ("ready_within", math.nan)):
        output = (
            f"{name}: {value!r} is not a number of seconds;"
            " use a number such as 30, or 0 for no limit"
        )
        assert refusal(**{name: value}) == output
    assert refusal(epochs=0).startswith("epochs: '0' is not a whole number from 1")
    assert refusal(epochs="3; rm").startswith("epochs: '3; rm' is not")
    assert refusal(backend="cloud") == f"unknown backend 'cloud'; use one of {', '.join(BACKENDS)}"
    assert refusal(on_failure="panic").startswith("on_failure: 'panic' is not fail, restart")
    assert refusal(start="soon").startswith("start: 'soon' is not TASK: MOMENT")
    assert refusal(start={"worker-9": "1s"}).startswith("--start: there is no task 'worker-9'")
    assert "worker-1: the others make only 550 steps, not 9,999" in refusal(
        epochs=1, start="worker-1: after 9999 steps"
    )
    assert refusal(faults="hug worker-1").startswith("faults: no such fault: ")
    assert refusal(experiment="asink").startswith("no experiment 'asink'; did you mean 'async'?")
    assert "unknown GPU mode 'many'" in refusal(gpus="many")
    Path("mine.py").write_text("")
    assert refusal(experiment="./mine.py", epochs=2) == (
        "run() has no argument 'epochs', and the flags of mine.py are not known;"
        " pass it as args=['--epochs=2']"
    )
    assert refusal(experiment="mine.py", record="it (").startswith("--record 'it (': missing )")
    assert refusal(record=r"it (?P<step>\d+)") == (
        "--record: async is an experiment; leave out --record"
    )


def test_own_program_gets_its_arguments(environment: FakeEnvironment) -> None:
    Path("mine.py").write_text("print(1)\n")
    api.run("mine.py", args=["--depth=3"], quiet=True)
    (request,) = environment.runs()
    assert (request.spec.own, request.spec.args) == (True, ("--depth=3",))
    api.run("mine.py", args="--depth=4", quiet=True)
    assert environment.runs()[-1].spec.args == ("--depth=4",)


def test_own_program_gets_its_expression_for_records(environment: FakeEnvironment) -> None:
    Path("mine.py").write_text("print(1)\n")
    done = api.run("mine.py", record=r"it (?P<step>\d+)", quiet=True)
    assert environment.runs()[-1].spec.record == done.info.spec.record == r"it (?P<step>\d+)"


def test_each_task_gets_a_program_of_its_own(environment: FakeEnvironment) -> None:
    for name in ("one", "two", "three"):
        Path(f"{name}.py").write_text("")
    api.run("ps-0=one.py,worker-0=two.py,worker-1=three.py", quiet=True)
    (request,) = environment.runs()
    assert {task: each.program for task, each in request.spec.programs.items()} == {
        "ps-0": "one.py",
        "worker-0": "two.py",
        "worker-1": "three.py",
    }
    (run,) = api.runs()
    assert run.info.spec.program == "ps-0=one.py,worker-0=two.py,worker-1=three.py"
    assert run.info.spec.experiment == "one-two-three"


def test_boolean_flags(environment: FakeEnvironment) -> None:
    api.run("async", log_device_placement=True, quiet=True)
    api.run("async", log_device_placement=False, quiet=True)
    first, second = (request.spec.args for request in environment.runs())
    assert any(word.startswith("--log_device_placement") for word in first)
    assert "--log_device_placement" not in second


def test_only_the_main_thread_gets_ctrl_c(environment: FakeEnvironment) -> None:
    caught: list[LabError] = []

    def elsewhere() -> None:
        try:
            api.run("async")
        except LabError as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(30)
    assert str(caught[0]).startswith("`run()` must be called from the main thread")
    assert not Path("runs").exists()


def test_hostile_text_stays_text_in_a_notebook(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\x1b[2J"
    directory = RunDir(tmp_path / "20261121-0810-async-7f3a")
    info = RunInfo(
        directory.run_id,
        RunSpec(evil),
        state=State.FAILED,
        reason=evil,
        backend=evil,
        collected=True,
    )
    directory.create(info)
    task = TaskSummary(
        evil, "w", 0, evil, [], "failed", 1, 1, None, 3, None, None, None, None, None
    )
    summary = Summary(
        info.run_id, evil, evil, "failed", evil, False, 7, None, None, 0, "", 0.5, 1.0, None, None,
        0, [task],
    )  # fmt: skip
    write_summary(directory, summary)
    html = api.Run(directory)._repr_html_()
    assert "<script" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J" in html


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A run store with three runs; the second is damaged, and so listed first."""
    for number in range(3):
        directory = RunDir(tmp_path / f"2026112{number}-0810-async-7f3a")
        info = RunInfo(
            directory.run_id,
            RunSpec("<i>async</i>"),
            state=State.SUCCEEDED,
            backend="local",
            collected=True,
            started_unix=1e9 + number,
        )
        directory.create(info)
        summary = Summary(
            info.run_id, "async", "local", "succeeded", "", True, 7, None, None, 0, "", 0.5, 1.0,
            1650, None, 0, [],
        )  # fmt: skip
        write_summary(directory, summary)
    (tmp_path / "20261121-0810-async-7f3a" / "run.json").write_text("{")
    return tmp_path


def test_runs_are_a_table_that_shows_damaged_runs(store: Path) -> None:
    runs = api.runs(store)
    assert isinstance(runs, list)
    assert [run.id[:8] for run in runs] == ["20261121", "20261120", "20261122"]
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
    assert repr(runs[1]).startswith("run 20261120-0810-async-7f3a: async on local, succeeded")


def test_a_slice_of_runs_is_runs(store: Path) -> None:
    runs = api.runs(store)
    assert isinstance(runs[1:], api.Runs)
    assert isinstance(runs[0], api.Run)
    assert "damaged" not in repr(runs[1:])
    assert repr(runs[:0]) == "no runs"


def test_only_the_newest_runs_are_shown(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.api.results.MAX_SHOWN", 2)
    text = repr(api.runs(store))
    assert "damaged" not in text
    assert "1 earlier run not shown" in text


def test_runs_as_a_data_frame(store: Path) -> None:
    frame = api.runs(store).frame()
    assert list(frame["state"]) == ["damaged", "succeeded", "succeeded"]
    assert frame["started"].dt.year.tolist()[1:] == [2001, 2001]
    assert api.runs(store / "empty").frame().empty


SAMPLES = Path(__file__).parents[2] / "notebooks/samples"


def test_figures_leave_no_state() -> None:
    code = (
        "import matplotlib as mpl; before = dict(mpl.rcParams);"
        "from lab import api;"
        f"png, size = api.runs({str(SAMPLES)!r})[0].figure('loss')._repr_png_();"
        "assert png.startswith(b'\\x89PNG') and size['width'] > 100;"
        "import matplotlib.pyplot as plt; assert plt.get_fignums() == [];"
        "assert dict(mpl.rcParams) == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_errors_of_figures() -> None:
    run = next(run for run in api.runs(SAMPLES) if run.info.spec.experiment == "sync")
    with pytest.raises(InputError, match="no figure 'looss'; did you mean 'loss'"):
        run.figure("looss")
    with pytest.raises(LabError, match=r"figure 'staleness' of run .* no record holds a staleness"):
        run.figure("staleness")
    with pytest.raises(InputError, match="needs a run"):
        api.figure("loss", [])
    assert len(api.figure("loss", [run, run]).axes) == 3  # by updates, time and images


def test_heavy_imports_are_lazy() -> None:
    heavy = "{'tensorflow', 'docker', 'pandas', 'numpy', 'scipy', 'matplotlib', 'msgspec'}"
    code = f"import sys; from lab import api; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_simulation_as_table_and_frame() -> None:
    found = api.simulate("async", workers=[1, 2], network="1gbit", beyond_validated=True)
    assert list(found.frame()["workers"]) == [1, 2]
    assert "no known error" in repr(found)
    assert "predicted for the shipped machine" in found._repr_html_()
    book = api.load(SAMPLES.parents[1] / "clusters/book.yaml")
    found = api.simulate("sync", cluster=book, beyond_validated=True)
    assert list(found.frame()["workers"]) == [3]


@pytest.mark.parametrize(
    ("way", "given", "output"),
    [
        ("asink", {}, "way: no way 'asink'; use one of async, sync, multiworker"),
        ("async", {"workers": 0}, "workers: '0' is not whole numbers from 1 to 512"),
        ("async", {"network": "fast"}, "network: 'fast' is not a rate such as 100gbit"),
        ("async", {"latency": "1ms"}, "--latency needs links"),
        ("async", {"workers": 512}, "never validated: 512 workers"),
        ("multiworker", {"ps": 1}, "multiworker has no parameter servers"),
    ],
)
def test_errors_of_simulations(way: str, given: dict[str, Any], output: str) -> None:
    with pytest.raises(InputError) as caught:
        api.simulate(way, **given)
    assert str(caught.value).startswith(output)


def test_a_sweep_runs_its_grid(
    environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    found = api.sweep("async", {"batch_size": [50, 100]}, repeats=2, epochs=1, seed=7, gpus="none")
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
    assert "4 of 4 runs ended" in err


def test_errors_of_sweeps(environment: FakeEnvironment) -> None:
    environment.tasks_do = fails
    with pytest.raises(LabError, match="the first run failed; the other runs are skipped"):
        api.sweep("async", "batch_size=50,100", quiet=True, gpus="none")
    assert environment.is_down
    for given, output in (
        ({"over": "batch_size"}, "over: 'batch_size' is not NAME=VALUE"),
        ({"over": {"workers": []}}, "over: 'workers=' is not NAME=VALUE"),
        ({"over": "batch_size=5", "repeats": 0}, "repeats: '0' is not a whole number from 1"),
        ({"over": "batch_size=5", "backend": "cloud"}, "unknown backend 'cloud'"),
    ):
        with pytest.raises(InputError) as caught:
            api.sweep("async", **given)  # type: ignore[arg-type]
        assert str(caught.value).startswith(output)


def test_reproduce_evaluates_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    chapter = next(run for run in api.runs(SAMPLES) if run.info.hyperparameters.get("epochs") == 50)
    found = api.reproduce("book-async", runs=[chapter, str(chapter.path)], runs_dir=tmp_path)
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


def test_reproduce_runs_what_is_missing(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = SAMPLES.parents[1]
    Path("clusters").mkdir()
    Path("clusters/book.yaml").write_text((root / "clusters/book.yaml").read_text())
    Path("scripts/async_fast.py").write_text("")
    Path("notebooks").mkdir()
    monkeypatch.chdir("notebooks")
    found = api.reproduce("book-async", repeats=1, seed=5, gpus="none", quiet=True)
    (run,) = found.runs  # the other one has the same records
    assert run.info.hyperparameters["seed"] == 5


def test_errors_of_reproductions(tmp_path: Path) -> None:
    for given, output in (
        ({"name": "book-asinc"}, "no source 'book-asinc'; did you mean 'book-async'? "),
        ({"name": "book-async", "runs": []}, "runs: there is no run"),
        ({"name": "book-async", "runs": ["x"]}, f"no run in {tmp_path}"),
        ({"name": "book-async", "repeats": 101}, "repeats: '101' is not a whole number"),
    ):
        with pytest.raises(InputError) as caught:
            api.reproduce(**given, runs_dir=tmp_path)  # type: ignore[arg-type]
        assert str(caught.value).startswith(output)


def test_an_error_is_one_line_whatever_the_input_is() -> None:
    for break_ in ("\n", "\r", "\x1b[2J"):
        with pytest.raises(InputError) as caught:
            api.run(f"async{break_}error: x")
        assert str(caught.value).isprintable()
    refused = ConfigError(["a.yaml:1:1: a\nb", "a.yaml:2:1: c"])
    assert str(refused) == "a.yaml:1:1: a\\x0ab\na.yaml:2:1: c"
