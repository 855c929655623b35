"""How commands choose the queue of a class, and what is different there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.backends.classroom.backend import ClassBackend
from lab.backends.names import CLASS
from lab.backends.selection import choose
from lab.config import parse_cluster
from lab.errors import InputError, LabError
from lab.log import shown_by
from lab.placement.plan import Plan
from lab.run.planning import make_plan, report_warnings
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment

LOCAL = FakeBackend("local")
QUEUE = FakeBackend(CLASS)
NO_SEAT = FakeBackend(CLASS, fault="this is no seat")
NO_TF = FakeBackend("local", fault="no TensorFlow")
UP = FakeBackend(CLASS, FakeEnvironment(Path()))


@pytest.mark.parametrize(
    ("name", "known", "answer"),
    [
        (
            "auto",
            [LOCAL, QUEUE],
            "backend local: TensorFlow is installed here, and no task has a GPU",
        ),
        (CLASS, [LOCAL, QUEUE], "backend class: as requested"),
        ("auto", [LOCAL, UP], "backend class: environment 'mnist' is up"),
        (
            "auto",
            [NO_TF, QUEUE],
            "backend local: no TensorFlow, backend class: request it with `--backend class`",
        ),
        ("auto", [NO_TF, NO_SEAT], "backend local: no TensorFlow"),
        (CLASS, [LOCAL, NO_SEAT], "backend class: this is no seat"),
    ],
)
def test_auto_takes_no_place_in_the_queue(
    name: str, known: Sequence[Any], answer: str, root: Path
) -> None:
    lines: list[str] = []
    try:
        with shown_by(lines.append):
            choose(name, PLAN, root, known)
    except LabError as error:
        lines.append(str(error))
    assert lines == [answer]


def test_the_plan_is_for_the_host_of_the_class(
    monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    config = b"{version: 1, name: m, nodes: {tf1: {gpus: 2}}, jobs: {worker: {on: [tf1]}}}"
    cluster = parse_cluster(config, "cluster.yaml")

    def gpus(plan: Plan) -> tuple[str, ...]:
        return plan.tasks[0].gpus

    assert gpus(make_plan(cluster, "auto", backend=CLASS).plan) == ("0", "1")
    assert gpus(make_plan(cluster, "none", backend=CLASS).plan) == ()
    report_warnings(make_plan(cluster, "auto", backend=CLASS), cluster, "auto")
    assert notices == []


def test_containers_see_the_home_directory_of_the_seat_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    own = tmp_path / "home" / "mine"
    assert ClassBackend().task_path(own, tmp_path) == str(own)
    with pytest.raises(InputError, match=r"is not in .*home, .*; move it there"):
        ClassBackend().task_path(tmp_path, tmp_path)
