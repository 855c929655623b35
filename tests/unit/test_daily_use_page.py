"""What a run cannot send home: docs/daily-use.md names it, and whoever follows a run is told."""

from __future__ import annotations

from pathlib import Path

from lab.run.collect import RESERVED
from lab.run.launch import Order, prepare
from lab.run.lifecycle import NoView, bring_home, enter, submit
from lab.task.experiments import EXPERIMENTS
from lab.task.protocol import Request, Volume
from lab.task.states import State
from tests.unit.fakes import PLAN, FakeEnvironment, end

PAGE = Path(__file__).parents[2] / "docs/daily-use.md"


def test_the_page_names_every_name_that_belongs_to_lab() -> None:
    text = PAGE.read_text("utf-8")
    assert [name for name in sorted(RESERVED) if f"`{name}" not in text] == []


class Notices(NoView):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def notice(self, line: str) -> None:
        self.lines.append(line)


def test_files_that_stay_on_the_volume_are_named_with_the_reason(tmp_path: Path) -> None:
    def leave_files(volume: Volume, request: Request) -> None:
        for name in (".cache", "report.html", "plain"):
            (volume.run(request.run_id) / name).write_text("x")
        for task in request.tasks():
            end(volume, request.run_id, task, State.SUCCEEDED)

    (tmp_path / "volume").mkdir()
    environment = FakeEnvironment(tmp_path / "volume", leave_files)
    order = Order(EXPERIMENTS["async"], (), PLAN, tmp_path, tmp_path / "cluster.yaml", "")
    run = prepare(order, tmp_path / "runs")
    enter(run, environment)
    submit(run, environment)
    view = Notices()
    bring_home(run, environment, follow=True, view=view)
    assert (run.path / "plain").is_file()
    assert view.lines == [
        f"2 files of run {run.run_id} stay on the volume, hidden or under names that belong"
        " to lab: .cache, report.html"
    ]
