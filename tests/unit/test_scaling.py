"""The validation of predictions: its measurements, its fit, its classes; nothing is timed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import scaling
from benchmarks.processes import Sample
from benchmarks.scaling import CALIBRATING, HELD_OUT, SINGLE, Case, Measured, Trial
from benchmarks.trainings import Setting, UnfitError, Workplace
from lab.records import Record
from lab.simulation import Costs, Forecast, Way, simulate
from lab.simulation.validation import SHIPPED, Kind

ROOT = Path(__file__).parents[2]
TRUE = Costs(2e-3, 7e-4, 2e-3, 0.6, 0.5, 5e-4, 2e-3, 7e-4, 1e-3, 1e-6)


def records(task: int, *marks: tuple[float, int]) -> list[Record]:
    return [
        Record(
            kind="step",
            time_unix=at,
            elapsed_s=at,
            local_step=step // 2,
            global_step=step,
            staleness=task,
        )
        for at, step in marks
    ]


def test_a_step_costs_what_was_spent_while_all_trained() -> None:
    of_each = {
        "worker-0": records(0, (10.0, 100), (12.0, 300), (15.5, 650)),
        "worker-1": records(1, (11.0, 200), (13.0, 400), (15.0, 600), (20.0, 1000)),
    }
    spent = {"ps-0": 1.0, "worker-0": 2.0, "worker-1": 3.0}
    samples = [
        Sample(at, {task: each * at for task, each in spent.items()}, 0.0, 6.75 * at)
        for at in (5.0, 11.5, 13.0, 15.2, 18.0)
    ]
    case = Case(Way.ASYNC, 2, 1)
    found = scaling.measured(case, of_each, samples)
    assert found.case == case
    assert found.steps_per_s == pytest.approx(100)
    assert (found.ps_cpu_s, found.worker_cpu_s) == pytest.approx((1 / 100, 5 / 100))
    assert found.taken == pytest.approx(0.75)  # of the 6.75 cores that were busy 6 were ours
    assert Measured.of_json(json.loads(json.dumps(asdict(found)))) == found
    with pytest.raises(UnfitError, match="too short for two samples"):
        scaling.measured(case, of_each, samples[:2])
    with pytest.raises(UnfitError, match="fewer than 5 step records"):
        scaling.measured(case, {name: each[:1] for name, each in of_each.items()}, samples)


def as_measured(case: Case, **changes: float) -> Measured:
    found = simulate(case.shape, TRUE, case.host, steps=100)
    figures = {
        "steps_per_s": found.steps_per_s,
        "staleness": found.staleness,
        "ratios": (0.9, 1.0, 1.1) if case.singly else (),
        "seconds": 5.0,
        "worker_cpu_s": found.worker_cpu_s,
        "ps_cpu_s": found.ps_cpu_s,
        "taken": 0.1,
    }
    return Measured(**asdict(case), **figures | changes)


def a_trial(times: int, off: float, *, shipped: bool = False) -> Trial:
    case = Case(Way.ASYNC, 4, 1)
    forecast = Forecast(case.shape, 100.0, 2.0, 0.0, 0.0, {"cores": 1.0})
    found = as_measured(case, steps_per_s=100 * (1 + off), staleness=2 * (1 - off))
    return Trial(found, forecast, shipped, Kind(Way.ASYNC, shipped, "", times))


def test_nine_of_ten_predictions_are_within_the_printed_error() -> None:
    assert scaling.quantile([0.1, 0.3, 0.2]) == 0.3
    assert scaling.quantile([number / 100 for number in range(1, 21)]) == 0.18
    trials = [a_trial(3, sign * number / 100) for number in range(1, 11) for sign in (-1, 1)]
    (row,) = scaling.classes([*trials, a_trial(8, 0.9), a_trial(8, 0.9)])  # two are no class
    assert (row["error"], row["staleness"], row["predictions"]) == (0.09, 0.09, 20)
    assert (row["workers"], row["times"], row["cores"]) == (4, 3, [2])


@pytest.mark.parametrize(("off", "verdict"), [(0.149, "met"), (0.151, "missed")])
def test_the_target_is_the_median_within_three_times(off: float, verdict: str) -> None:
    trials = [a_trial(3, off), a_trial(1, -off), a_trial(8, 0.9), a_trial(3, 0.9, shipped=True)]
    (outcome,) = scaling.outcomes(trials)
    assert outcome.verdict() == verdict
    assert outcome.found is not None
    assert outcome.found.values == pytest.approx((off, off))


def test_the_fitted_machine_its_errors_and_the_page_are_written(tmp_path: Path) -> None:
    def train(_place: Workplace, case: Case, _steps: int, _every: int) -> Measured:
        return as_measured(case)

    held_out = [each for each in HELD_OUT if each.way is Way.ASYNC and each.mbit is None][:5]
    cases = (SINGLE, *dict.fromkeys((*CALIBRATING, *held_out)))
    for name in ("benchmarks", "lab/simulation", "docs"):
        (tmp_path / name).mkdir(parents=True)
    page = tmp_path / "docs/scaling.md"
    page.write_text("<!-- errors -->\n<!-- end -->\n<!-- trainings -->\n<!-- end -->\n")
    setting = Setting(Workplace(tmp_path, {}), 1, True, ("local",))
    trials = scaling.write(scaling.trained(setting, cases, train), tmp_path)
    # A training that calibrates is not held out, and predicts trainings of its way only.
    assert {each.measured.case for each in trials} == set(cases) - {SINGLE, *CALIBRATING}
    assert all(each.kind for each in trials)
    assert len(json.loads((tmp_path / "benchmarks/scaling.json").read_text())["trainings"]) == len(
        cases
    )
    raw = json.loads((tmp_path / "lab/simulation/machine.json").read_text())
    for case in CALIBRATING:
        ours, wanted = (
            simulate(case.shape, costs, case.host, steps=100).steps_per_s
            for costs in (Costs(**raw["costs"]), TRUE)
        )
        assert ours == pytest.approx(wanted, rel=0.05)
    assert raw["ratios"] == [0.9, 1.0, 1.1]
    assert {(row["way"], row["times"]) for row in raw["errors"]} >= {("async", 3), ("async", 8)}
    assert "| async 8 x 1 ps |" in page.read_text()
    assert page.read_text().count("; met") == 1


def test_the_page_and_the_errors_are_those_of_the_kept_figures() -> None:
    page = (ROOT / "docs/scaling.md").read_text("utf-8")
    for row in SHIPPED.raw["errors"]:
        assert f"| {row['predictions']} | {row['median']:.0%} | ±{row['error']:.0%} |" in page
    kept = json.loads((ROOT / "benchmarks/scaling.json").read_text("utf-8"))
    assert SHIPPED.raw["when"] == kept["when"]
    assert all(Measured.of_json(row).name in page for row in kept["trainings"])
