"""The notice about a program whose lines give no record of a step."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from lab.base.log import passed_on
from lab.protocol.records.log_parsers import LogParser
from lab.runner.store.directory import RunDir
from lab.runner.store.summarize import summarize
from lab.runner.verdict import report_unread
from tests.support.shown import assert_shows
from tests.support.specs import run_info


def notice(
    folder: Path, printed: str, *, own: bool = True, records: str = "", run_id: str = "r"
) -> str:
    info = run_info("r", cluster={"ps": ["a:1"], "worker": ["a:2"]})
    run = RunDir(folder / run_id)
    run.path.mkdir()
    run.write(replace(info, spec=replace(info.spec, own=own, program="mine.py")))
    for path, text in ((run.log("worker-0"), printed), (run.records("worker-0"), records)):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    found: list[str] = []
    with passed_on(found.append):
        report_unread(run, summarize(run))
    return "".join(found)


THIRD = {"kind": "step", "global_step": 3, "loss": 0.5}
ITERATION = "Iteration #1,200 >> err is 0.5 (lr 0.1)"


@pytest.mark.parametrize(
    ("before", "example", "record"),
    [
        ("begin\n", "batch 3 loss 0.5", THIRD),
        ("", "batch 3   loss = 0.5", THIRD),
        ("", "G_loss: 0.5", {"kind": "step", "loss": 0.5}),
        ("loss 0.5\n", ITERATION, {"kind": "step", "global_step": 1200, "loss": 0.5}),
        ("", "epoch 3 took 5 s", {"kind": "epoch", "epoch": 2}),
    ],
)
def test_the_notice_has_an_expression_that_reads_its_example(
    tmp_path: Path, before: str, example: str, record: object
) -> None:
    printed = 2 * f"{before}{example}\n"
    found = notice(tmp_path, printed)
    assert found.startswith(f'no step was read from mine.py\'s lines, such as "{example}"; use ')
    regex = shlex.split(found.rpartition(" --record ")[2])[0]
    assert len(regex) < 90
    assert LogParser(regex).read(example.encode()) == record
    assert notice(tmp_path, printed, run_id="other", own=False) == ""
    step = '{"kind": "epoch", "epoch": 0, "time_unix": 1.0}\n'
    assert notice(tmp_path, printed, run_id="recorded", records=step) == ""


def test_the_page_on_lines_shows_the_notice(tmp_path: Path) -> None:
    found = notice(tmp_path, "batch 0 loss 2.0\nbatch 1 loss 1.9\n")
    assert_shows("docs/reference/printed-programs.md", "no step was read", found)


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "hello\n5 files in 3 s\n",
        "made global_step:0 and one batch 3\n",
        "Accuracy: 0.91\n",
        "1/469 [..............] - ETA: 1:39 - loss: 2.3 - accuracy: 0.1\n",
        "Epoch 1/5\n",
        "I0000 00:00:1795270972.284139   15586 master.cc:243] step 5 loss 0.3\n",
        2 * "[W1127 12:32:45.392327747 socket.cpp:207] [c10d] No hostname. err=-3\n",
        "INFO:tensorflow:global_step/sec: 120.3\n",
        '  File "train.py", line 10, in step\nValueError: loss 3\n',
        'Traceback (most recent call last):\n  File "a.py", line 3\n    fit(x, epochs=2, step=3)\n'
        "    ^^^^^^\nValueError: loss 3\n",
        "stepping 5 stones\nsteps_per_second5 3\n",
    ],
)
def test_lines_without_numbers_of_a_training_cause_no_notice(tmp_path: Path, printed: str) -> None:
    assert notice(tmp_path, printed) == ""
