"""The lesson of one hour, as a student goes through it; its last stages are restored."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from lab.teach.lessons.lesson import load_lesson
from tests.support.commands import lab
from tests.support.experiments import LOCAL


def test_the_stages_of_the_hour_are_passed_by_their_commands_and_right_answers(
    tmp_path: Path,
) -> None:
    def check(*answers: str, code: int) -> dict[str, Any]:
        given = [f"--answer={each}" for each in answers]
        out, _ = lab(tmp_path, "check", "hour", *given, "--json", code=code)
        return {each["stage"]: each for each in json.loads(out)["stages"]}

    runs = {}
    *own, _, _ = load_lesson("hour").stages
    for stage in own:
        words = shlex.split(stage.command)
        assert words.pop(0) == "lab"
        out, _ = lab(tmp_path, *words, *LOCAL, "--json")
        runs[stage.name] = json.loads(out.splitlines()[-1])
    lab(tmp_path, "restore", "hour", "killed")
    out, _ = lab(tmp_path, "show", "last", "--json")
    runs["killed"] = json.loads(out)
    stages = check(code=0)
    assert [each["hint"] for each in stages.values()] == [""] * 5
    assert not any(each["passed"] for each in stages.values())
    rates = [runs[each]["steps_per_s"] for each in ("slow", "sync")]
    missing = runs["first"]["global_step"] - runs["killed"]["global_step"]
    right = ["updates=1,650", "rounds=550", f"share={rates[0] / rates[1]:.2f}"]
    stages = check(*right, "stalest=worker-0", f"missing={missing + 1}", code=1)
    assert [each["passed"] for each in stages.values()] == [True, True, True, False, False]
    stages = check("stalest=worker-1", f"missing={missing}", code=0)
    assert all(each["passed"] for each in stages.values())
