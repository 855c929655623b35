"""`lab run --record`: records by a regular expression of the user."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.base.errors import InputError
from lab.protocol.records import Record, format_record, record_pattern
from lab.protocol.records.log_parsers import LogParser
from lab.protocol.records.record_pattern import GROUPS, LONGEST, RecordPattern
from lab.runner.own_experiment import check_record


@pytest.mark.parametrize(
    ("regex", "line", "record"),
    [
        (
            r"it (?P<step>[\d,]+).* err (?P<loss>\S+)",
            "it 1,200: err 0.5, lr 0.1",
            {"kind": "step", "global_step": 1200, "loss": 0.5},
        ),
        (
            r"(?P<local_step>\d+) of (?P<global_step>\d+)",
            "5 of 10",
            {"kind": "step", "local_step": 5, "global_step": 10},
        ),
        (r"round (?P<epoch>\d+)", "round 3", {"kind": "epoch", "epoch": 2}),
        (r"score (?P<accuracy>\S+)", "score 95.5%", {"kind": "final", "accuracy": 0.955}),
        (r"err (?P<loss>\S+)", "err NaN!", None),
        (r"err (?P<loss>\S+)", "err 1e-05.", {"kind": "step", "loss": 1e-05}),
        (r"it (?P<step>\S+)", "it five", None),
        (r"it (?P<step>\d+)", "step 5, loss 0.5", {"kind": "step", "global_step": 5, "loss": 0.5}),
        (r"step \d+, loss (?P<loss>\S+)", "step 5, loss 0.5", {"kind": "step", "loss": 0.5}),
        (r"^it (?P<step>\d+)$", "it 1\rit 2\r", {"kind": "step", "global_step": 2}),
        (r"é (?P<step>\d+)", "é 5", {"kind": "step", "global_step": 5}),
        (r"(?P<step>\d+)$", " " * LONGEST + "5", {"kind": "step", "global_step": 5}),
        (r"(?P<step>\d+)$", "x" * LONGEST + "5", None),
    ],
)
def test_an_expression_makes_a_record(regex: str, line: str, record: Record | None) -> None:
    assert LogParser(regex).read(line.encode()) == record


@given(st.text(), st.sampled_from(GROUPS))
def test_any_text_of_a_group_gives_a_good_record_or_none(text: str, group: str) -> None:
    if (record := RecordPattern(f"(?s)(?P<{group}>.*)").read(text)) is not None:
        format_record(record)


@pytest.mark.parametrize(
    ("regex", "message"),
    [
        (r"(?P<step>\d+", r"missing ), unterminated subpattern at position 0"),
        (r"step (\d+)", "names no group; name one of step, global_step, local_step, epoch, loss"),
        (r"(?P<los>.)", "no group 'los' in a record; name one of step"),
        (r"(?P<step>\d+)(\w+\s*)*$", "takes too long"),
    ],
)
def test_an_expression_that_cannot_work_is_an_error(
    regex: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_record(r"step (?P<step>\d+).* loss (?P<loss>\S+).* acc (?P<accuracy>\S+)")  # usual
    monkeypatch.setattr("lab.runner.own_experiment.LIMIT_S", 1.0)
    with pytest.raises(InputError, match=re.escape(message)):
        check_record(regex)


@pytest.mark.parametrize(
    ("regex", "message"),
    [
        (r"it (?P<step>\d+)", "takes too long for a line; its lines are no longer read"),
        (r"(?P<step>\d+", "cannot be used: missing )"),  # for the client's version of Python
    ],
)
def test_an_expression_that_fails_later_is_left_out_and_reported_once(
    regex: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_pattern, "SLOW_S", -1.0)
    parser = LogParser(regex)
    event = parser.read(b"it 1") or {}
    assert event["kind"] == "event"
    assert str(event["message"]).startswith(f"--record {message}")
    assert parser.read(b"it 2") is None
