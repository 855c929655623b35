"""Every verb returns a result that shows itself: in a terminal, in a notebook, and as JSON."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.padding import Padding
from rich.text import Text

import lab
from lab.backends.checks import warning
from lab.base.options import parameters
from lab.base.strict_json import dump
from lab.verbs import COMMANDS, python_name
from lab.verbs.printing import Note, Shown, prints
from tests.support.cli import ROOT, Host, make_run

NOT_SHOWN = {"shell": "the shell has the terminal"}
"""The verbs without a result."""

TEXT_ONLY = {"shell": "it prints nothing", "completion": "a script is text for a shell"}
"""The commands without `--json`."""

RUN = "20260101-0000-async-aaaa"
OTHER = "20260102-0000-async-bbbb"
CLASS = "version: 1\nname: w\nseats: [ada, bob]\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_verb_declares_its_result(command: str) -> None:
    function = getattr(lab, python_name(command))
    module = import_module(f"lab.verbs.{python_name(command)}")
    returned = SimpleNamespace(
        __annotations__={"it": inspect.signature(function).return_annotation}
    )
    (kind,) = typing.get_type_hints(returned, vars(module)).values()
    shown = [each for each in typing.get_args(kind) or (kind,) if each is not type(None)]
    assert all(issubclass(each, Shown) for each in shown)
    assert bool(shown) is (command not in NOT_SHOWN)
    names = [each.name for each in parameters(module.command)]
    assert ("json" in names) is (command not in TEXT_ONLY)


@pytest.fixture
def place(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A project with two runs, and a class; nothing is built, and no host is examined."""
    for name in (RUN, OTHER):
        make_run(host.folder, name)
    Path("class.yaml").write_text(CLASS)
    monkeypatch.setattr("lab.verbs.build.build_image", lambda plan, *, root: "lab:cpu")
    monkeypatch.setattr("lab.checks.host.check_packages", lambda _: warning("old", "renew it"))
    monkeypatch.setattr("lab.verbs.restore.missing_stages", lambda *_: [])
    return host


def of_the_book() -> lab.Run:
    runs = lab.runs(ROOT / "notebooks/samples")
    return next(run for run in runs if run.info.hyperparameters.get("epochs") == 50)


CALLS: dict[str, Callable[[], Shown]] = {
    "run": lambda: lab.run("async", epochs=1, gpus="none", quiet=True),
    "runs": lab.runs,
    "show": lambda: lab.show(RUN),
    "notices": lambda: lab.show(RUN, notices=True),
    "compare": lambda: lab.compare(RUN, OTHER),
    "report": lambda: lab.report(RUN),
    "doctor": lab.doctor,
    "experiments": lab.experiments,
    "sweep": lambda: lab.sweep("async", {"batch_size": [50]}, repeats=1, gpus="none", quiet=True),
    "reproduce": lambda: lab.reproduce("book-async", runs=[of_the_book()], quiet=True),
    "simulate": lambda: lab.simulate("async", workers=2),
    "data": lambda: lab.data("tfrecords", Path("x.tfrecords")),
    "attach": lambda: lab.attach(RUN, quiet=True, check=False),
    "logs": lambda: lab.logs(RUN),
    "logs of an environment": lambda: lab.logs(task="ps-0"),
    "logs that follow": lambda: lab.logs(task="ps-0", follow=True),
    "export": lambda: lab.export(RUN),
    "import": lambda: lab.import_(lab.export(RUN).file, runs_dir="others"),
    "up": lambda: lab.up(gpus="none"),
    "down": lambda: lab.down(discard=True),
    "ps": lab.ps,
    "ps of one": lambda: lab.ps("mnist"),
    "backends": lab.backends_,
    "gpus": lab.gpus,
    "init": lambda: lab.init(gpus=2, output=Path("other.yaml")),
    "init to stdout": lambda: lab.init(gpus=2, output="-"),
    "render": lambda: lab.render(gpus="none"),
    "render to stdout": lambda: lab.render(gpus="none", output="-"),
    "validate": lab.validate,
    "schema": lambda: lab.validate(schema=True),
    "build": lab.build,
    "check": lab.check,
    "check a lesson": lambda: lab.check("async"),
    "restore": lambda: lab.restore("async", "late"),
    "class": lambda: lab.class_("validate", gpus=2),
    "completion": lambda: lab.completion("bash"),
}
"""A call of each verb but those that need a run under way, by what it is."""

UNDER_WAY: dict[str, Callable[[], Shown]] = {
    "fault": lambda: lab.fault("kill worker-1 after 500 steps", run="r1"),
    "cancel": lambda: lab.cancel("r1"),
}


def test_every_verb_is_called() -> None:
    assert CALLS.keys() | UNDER_WAY.keys() | NOT_SHOWN.keys() >= COMMANDS.keys()


def assert_has_three_forms(result: Shown, capture: pytest.CaptureFixture[str]) -> None:
    assert isinstance(result, Shown)
    assert "<rich." not in repr(result)
    html = result._repr_html_()
    assert repr(result).strip() and html.strip()
    assert "object at" not in html
    capture.readouterr()
    result.show()
    shown = capture.readouterr()
    if not getattr(result, "is_live", False):
        json.loads(dump(result.to_json()))
        said = set((shown.out + shown.err).split())
        assert said & set(repr(result).split()) or not said


@pytest.mark.parametrize("call", CALLS)
def test_a_result_has_three_forms(call: str, place: Host) -> None:
    assert_has_three_forms(CALLS[call](), place.capture)


@pytest.mark.parametrize("call", UNDER_WAY)
def test_so_has_that_of_a_run_under_way(call: str, place: Host) -> None:
    place.submit(lambda *_: None)
    assert_has_three_forms(UNDER_WAY[call](), place.capture)


def test_the_lines_that_follow_are_printed_and_are_no_json(place: Host) -> None:
    assert place.lab("logs --follow --task ps-0")[0] == "ps-0  | \\x1b[31mred\n"
    assert "--follow cannot be used with --json" in place.error("logs --follow --json")


def test_what_restore_has_done(place: Host) -> None:
    Path("scripts/mnist_async.py").write_text("changed")
    found = json.loads(place.lab("restore async late --json")[0])
    assert Path(found["changed"], "scripts/mnist_async.py").read_text() == "changed"
    assert (found["lesson"], found["stage"], found["runs"]) == ("async", "late", [])


def test_what_init_has_written(place: Host) -> None:
    found = json.loads(place.lab("init --gpus 2 --output other.yaml --json")[0])
    assert found["written"][0] == "other.yaml"
    assert all(Path(each).exists() for each in [*found["written"], *found["kept"]])
    assert Path("other.yaml").read_text() == found["config"]


class Mixed(Shown):
    """Parts of each kind."""

    def _shown(self) -> list[object]:  # type: ignore[override]
        return [Note("see `x`\x1b"), "a line", Text("a <b>"), Padding(Text("in"), (0, 2))]


def test_notes_go_to_stderr_and_the_rest_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    def mixed() -> Mixed:
        return Mixed()

    prints(mixed)()
    shown = capsys.readouterr()
    assert shown.out.split("\n")[:2] == ["a line", "a <b>"]
    assert shown.err == "see `x`\\x1b\n"
    assert repr(Mixed()).split("\n")[:3] == ["see `x`\\x1b", "a line", "a <b>"]
    html = Mixed()._repr_html_()
    assert html.startswith("<pre>see `x`\\x1b<br>a line<br>a &lt;b&gt;<br>")
    assert "Padding" not in html
