"""The record grammar: written records read back, and no other text is a record."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.protocol.records import (
    FIELDS,
    KINDS,
    MAX_BYTES,
    Record,
    RecordError,
    Value,
    format_record,
    parse_record,
)

VALUES: dict[object, st.SearchStrategy[Value]] = {
    float: st.floats(allow_nan=False),
    # Lone surrogates too: Python makes them of file names that are no UTF-8.
    str: st.text(st.characters(exclude_categories=()), max_size=20),
    int: st.integers(-(2**63), 2**63 - 1),
}


def records() -> st.SearchStrategy[Record]:
    optional = {name: VALUES[kind] for name, kind in FIELDS.items() if name != "kind"}
    return st.fixed_dictionaries({"kind": st.sampled_from(KINDS)}, optional=optional)


@given(records())
def test_records_round_trip_as_one_short_line_of_printable_ascii(record: Record) -> None:
    line = format_record(record)
    for end in ("", "\n", "\r\n"):
        assert parse_record(line + end) == record
    assert len(line.splitlines()) == 1
    assert len(line.encode()) < MAX_BYTES
    assert line.isascii()
    assert line.isprintable()


@given(st.text(min_size=600, max_size=9000))
@settings(max_examples=50)
def test_a_long_message_is_cut_and_marked(message: str) -> None:
    line = format_record({"kind": "event", "seq": 3, "message": message})
    assert len(line.encode()) < MAX_BYTES
    record = parse_record(line)
    read = str(record["message"])
    assert read == message or message.startswith(read.removesuffix("…"))
    assert record["seq"] == 3


def test_a_cut_message_fills_the_line_whatever_its_characters_take() -> None:
    for character in ("a", "é", "\x1b", "😀"):  # 1, 6, 6 and 12 bytes
        line = format_record({"kind": "event", "message": character * 5000})
        assert MAX_BYTES - 12 <= len(line) < MAX_BYTES
        record = parse_record(line)
        assert set(str(record["message"])) == {character, "…"}


@given(st.text())
def test_any_text_is_handled(text: str) -> None:
    """A line is a record, no record, or an error of one type."""
    for line in (text, "lab kind=" + text, "lab kind=step " + text):
        try:
            record = parse_record(line)
        except RecordError:
            continue
        if record is not None:
            assert record["kind"] in KINDS
            assert record.keys() <= FIELDS.keys()


def test_the_readable_example() -> None:
    line = (
        "lab kind=step run=20261121-0810-async-7f3a job_name=worker task_index=0 seq=17 epoch=9 "
        "local_step=5500 global_step=10896 loss=1.257562 staleness=2 step_time_s=0.00231 "
        "elapsed_s=12.345"
    )
    record = parse_record(line)
    assert record["run"] == "20261121-0810-async-7f3a"
    assert record["global_step"] == 10896
    assert record["loss"] == pytest.approx(1.257562)
    assert format_record(record) == line


@pytest.mark.parametrize("line", ["", "labels", "lab", "lab  kind=step", " lab kind=step", "x"])
def test_other_lines_are_no_records(line: str) -> None:
    assert parse_record(line) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lab kind=dance", "unknown kind 'dance'"),
        ("lab kind=", "unknown kind ''"),
        ("lab kind=step colour=red", "unknown field 'colour'"),
        ("lab kind=step seq=1 seq=2", "field 'seq' twice"),
        ("lab kind=step seq=one", "seq has no readable value: 'one'"),
        ("lab kind=step seq=9223372036854775808", "seq does not fit into 64 bits"),
        ("lab kind=step seq=-9223372036854775809", "seq does not fit into 64 bits"),
        ("lab kind=step seq=1.5", "seq has no readable value: '1.5'"),
        ("lab kind=step loss=", "loss has no readable value: ''"),
        ("lab kind=step loss", "not a field at column 15"),
        ("lab kind=step  seq=1", "not a field at column 15"),
        ('lab kind=event message="open', "not a field at column 16"),
        ('lab kind=event message="a"b', "not a field at column 16"),
        ('lab kind=event message="\\x"', "message has no readable value: '\"\\\\x\"'"),
    ],
)
def test_a_broken_record_names_the_fault(line: str, message: str) -> None:
    with pytest.raises(RecordError) as error:
        parse_record(line)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "unknown kind None"),
        ({"kind": "dance"}, "unknown kind 'dance'"),
        ({"kind": "step", "colour": "red"}, "unknown field 'colour'"),
        ({"kind": "step", "seq": 1.0}, "seq cannot be 1.0"),
        ({"kind": "step", "seq": 2**63}, "seq cannot be 9223372036854775808"),
        ({"kind": "step", "seq": True}, "seq cannot be True"),
        ({"kind": "step", "loss": "low"}, "loss cannot be 'low'"),
        ({"kind": "step", "loss": False}, "loss cannot be False"),
        ({"kind": "step", "status": 3}, "status cannot be 3"),
        ({"kind": "event", "status": "x" * 5000}, "longer than 4096 bytes"),
    ],
)
def test_a_wrong_field_is_refused(fields: Record, message: str) -> None:
    with pytest.raises(RecordError) as error:
        format_record(fields)
    assert str(error.value) == message


def test_a_number_of_ten_thousand_digits_is_unreadable() -> None:
    with pytest.raises(RecordError, match="global_step has no readable value"):
        parse_record(f"lab kind=step global_step={'9' * 10_000}")
    record = parse_record(f"lab kind=step loss={'9' * 10_000}")
    assert record == {"kind": "step", "loss": math.inf}


def test_texts_and_times_in_records() -> None:
    line = format_record({"kind": "event", "message": "\x1b[31mred\x9b\u2028\n"})
    assert line == r'lab kind=event message="\u001b[31mred\u009b\u2028\n"'
    assert format_record({"kind": "event", "time_unix": 1795256117.972}).endswith("=1795256117.972")
    record = parse_record(format_record({"kind": "step", "loss": math.nan}))
    assert math.isnan(float(record["loss"]))  # it diverged
